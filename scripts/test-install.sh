#!/bin/sh
# What a user types, in an environment of its own with torch: the wheel without a compiler, the folder, the sources, and
# the two that must fail with one line. `make test-install` builds the wheel first. TORCH: what to install for torch.
# --quick leaves out the two that compile once more.
set -eu
cd "$(dirname "$0")/.."
where=build/install
python=$where/bin/python
pip="$python -m pip --disable-pip-version-check -qq"
no_compiler="env PATH=/nonexistent CC=/nonexistent/cc CXX=/nonexistent/c++"
here=$PWD
passed=0

say() { printf '%s\n' "$*"; }
fail() { say "test-install: $*" >&2; exit 1; }
# Away from here, so that src/ cannot help.
command() { (cd / && "$here/$where/bin/quasirnn" "$@"); }

# What the wheel's build left behind would be taken instead of compiling.
fresh() { rm -rf build/lib* build/temp* build/bdist*; }

kernels() {
    command doctor | grep -q 'runs on cpu .*the compiled kernels' || fail "$1: doctor does not name the compiled kernels"
    passed=$((passed + 1))
    say "ok: $1"
}

must_fail() {  # what, words that its output must have, command
    what=$1 words=$2
    shift 2
    if "$@" >$where/output 2>&1; then fail "$what: was not an error"; fi
    [ "$(grep -c "quasirnn: .*$words" $where/output)" -ge 1 ] || { cat $where/output >&2; fail "$what: does not say \"$words\""; }
    passed=$((passed + 1))
    say "ok: $what"
}

rm -rf $where
"${PYTHON:-python3}" -m venv $where
must_fail 'pip install . without torch is one line' 'pip install torch' $pip install --no-deps .
$pip install $TORCH numpy
$no_compiler "$here/$python" -m pip --disable-pip-version-check -qq install -c constraints.txt --find-links dist quasirnn
kernels 'the wheel, without a compiler'
$pip uninstall -y quasirnn
if [ "${1:-}" != --quick ]; then
    fresh
    $pip install -c constraints.txt .
    kernels 'pip install .'
    $pip uninstall -y quasirnn
    $pip install dist/*.tar.gz
    kernels 'the sources'
    $pip uninstall -y quasirnn
fi
fresh
must_fail 'pip install . without a compiler is one line' 'QUASIRNN_NO_KERNELS=1' \
    env CC=/nonexistent/cc CXX=/nonexistent/c++ $pip install --no-deps .
QUASIRNN_NO_KERNELS=1 $pip wheel --no-deps -w $where/without .
[ -e $where/without/*-py3-none-any.whl ] || fail 'the wheel without kernels is not py3-none-any'
passed=$((passed + 1))
say 'ok: the wheel without kernels is py3-none-any'
$pip install dist/*.whl
"$here/$python" scripts/import-times.py "$here/$where/bin/quasirnn"
say "$passed passed, 0 failed"
