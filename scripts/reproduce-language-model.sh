#!/bin/sh
# The paper's language model on the Penn Treebank: QRNN with zoneout, the equal LSTM, QRNN without zoneout, and the fast
# preset. Each run is started, or continued from where it stopped; a run that is finished is left alone.
#
#   DATA=folder   holds ptb/ or ptb.tar.xz        RUNS=folder   where the runs go
#   Further arguments are KEY=VALUEs for every run, such as epochs=6.
set -eu

quasirnn="$PWD/.venv/bin/quasirnn"
if [ -z "${DATA:-}" ] || [ ! -d "$DATA" ]; then
    echo "reproduce-language-model: say where the corpus is: make reproduce-language-model DATA=folder [RUNS=runs]." >&2
    echo "The folder holds ptb/ with ptb.train.txt, ptb.valid.txt and ptb.test.txt, or ptb.tar.xz." >&2
    exit 2
fi
data=$(cd "$DATA" && pwd)
mkdir -p "$RUNS"
cd "$RUNS"
if [ ! -d ptb ]; then
    if [ -d "$data/ptb" ]; then ln -s "$data/ptb" ptb
    elif [ -f "$data/ptb.tar.xz" ]; then tar xJf "$data/ptb.tar.xz"
    else echo "reproduce-language-model: $data has neither ptb/ nor ptb.tar.xz." >&2; exit 2
    fi
fi

# A run that is stopped by a signal is saved and ends well: without this the next one would start.
trap 'exit 130' INT TERM

train() {
    run=$1
    shift
    echo "== $run" >&2
    "$quasirnn" train language-model --data ptb --out "$run" --resume "$@"
    # Stopped in the middle by a signal of its own: its last record says so.
    if tail -n 1 "$run/metrics.jsonl" | grep -q '"reason": "signal"'; then exit 130; fi
}

train lm-paper-qrnn --preset paper precision=bfloat16 "$@"
train lm-paper-lstm --preset paper --cell lstm precision=bfloat16 "$@"
train lm-paper-qrnn-no-zoneout --preset paper precision=bfloat16 zoneout=0 "$@"
train lm-fast --preset fast
