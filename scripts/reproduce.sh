#!/bin/sh
# The paper's experiments, each beside an LSTM with as many units: reproduce.sh TASK [KEY=VALUE ...]
#
# Every run is started, or continued from where it stopped, in the order of its worth; a run that is finished is left
# alone. A finished run is evaluated on test. Ctrl-C stops, and the next call continues. At the end comes the table of
# all runs, and which are missing.
#
#   DATA=folder      holds the corpora, as folders or .tar.xz: ptb; imdb and the word vectors; ted-lower-de-en,
#                    multi30k-de-en, tatoeba-de-en, and iwslt (train.tags.de-en.de and the XML files) for the paper's own
#   RUNS=folder      where the runs go
#   ONLY="RUN ..."   these alone; status: none of them, only the table
#   VECTORS=file     other word vectors than DATA/glove.6B.100d.imdb.npz or DATA/glove.6B.100d.txt
#   KEY=VALUE        for every run, such as epochs=3
set -eu

task=${1:-}
quasirnn="$PWD/.venv/bin/quasirnn" python="$PWD/.venv/bin/python" scripts="$PWD/scripts"
fail() {
    echo "reproduce-$task: $*" >&2
    exit 2
}
case $task in
language-model) corpora=ptb ;;
sentiment) corpora="imdb and glove.6B.100d.txt" ;;
translation) corpora="ted-lower-de-en, multi30k-de-en, tatoeba-de-en or iwslt" ;;
*) echo "reproduce: which task? language-model, sentiment or translation." >&2 && exit 2 ;;
esac
shift
[ -d "${DATA:-}" ] || fail "where is $corpora? make reproduce-$task DATA=folder [RUNS=runs] [ONLY=...]"
data=$(cd "$DATA" && pwd)
if [ -n "${VECTORS:-}" ]; then vectors=$(cd "$(dirname "$VECTORS")" && pwd)/$(basename "$VECTORS")
elif [ -f "$data/glove.6B.100d.imdb.npz" ]; then vectors=$data/glove.6B.100d.imdb.npz
else vectors=$data/glove.6B.100d.txt
fi
mkdir -p "${RUNS:=runs}"
cd "$RUNS"
begun='' missing='' known=''

unpacked() {
    if [ -e "$1" ]; then return 0; fi
    if [ -d "$data/$1" ]; then ln -s "$data/$1" "$1"
    elif [ -f "$data/$1.tar.xz" ]; then
        # Elsewhere first: half a corpus must not be taken for a whole one.
        rm -rf "$1.part" && mkdir "$1.part" && tar xJf "$data/$1.tar.xz" -C "$1.part" && mv "$1.part/$1" "$1"
        rmdir "$1.part"
    else return 1
    fi
}

# RUN CORPUS ARGUMENTS...
run() {
    name=$1 corpus=$2
    shift 2
    known="$known $name"
    case " ${ONLY:-$name} " in
    *" $name "*)
        if unpacked "$corpus"; then
            echo "== $name" >&2
            "$quasirnn" train "$task" --data "$corpus" --out "$name" --resume "$@"
            evaluated=$name/evaluation-test.json
            if [ ! -f "$evaluated" ] || [ "$name/model.safetensors" -nt "$evaluated" ]; then
                "$quasirnn" evaluate "$name" --save
            fi
        elif [ -n "${ONLY:-}" ]; then fail "$name: $data has neither $corpus/ nor $corpus.tar.xz."
        fi
        ;;
    esac
    if [ -f "$name/metrics.jsonl" ]; then begun="$begun $name"; else missing="$missing $name"; fi
}

# As run, with either cell. (Variables of sh are global: it has names of its own.)
both() {
    stem=$1 rows=$2
    shift 2
    run "$stem-qrnn" "$rows" "$@"
    run "$stem-lstm" "$rows" --cell lstm "$@"
}

# The option for two files of word vectors as one, made on the first call; nothing where one is missing.
side_by_side() {
    word2vec=$data/word2vec.googlenews.300d.26k.npz joined=glove100-word2vec300.npz
    case $vectors in *.npz) ;; *) return 0 ;; esac
    [ -f "$word2vec" ] || return 0
    [ -f "$joined" ] || "$python" "$scripts/join-vectors.py" "$vectors" "$word2vec" "$joined" >&2
    echo "--vectors $joined"
}

case $task in
language-model)
    both lm-paper ptb --preset paper precision=bfloat16 "$@"
    both lm-best ptb --preset best "$@"
    run lm-paper-qrnn-no-zoneout ptb --preset paper precision=bfloat16 zoneout=0 "$@"
    ;;
sentiment)
    [ -f "$vectors" ] || fail "$vectors: no such file; name the word vectors: VECTORS=file."
    # A copy beside the runs, so that a run names the same file wherever it is continued.
    [ -e "$(basename "$vectors")" ] || ln -s "$vectors" .
    set -- --vectors "$(basename "$vectors")" "$@"
    both imdb-paper imdb --preset paper precision=bfloat16 "$@"
    # `best` reads GloVe and word2vec side by side where both are there.
    both imdb-best imdb --preset best "$@" $(side_by_side)
    run imdb-paper-qrnn-wide imdb --preset paper precision=bfloat16 kernel_size=4,2,2,2 "$@"
    ;;
translation)
    both ted-paper ted-lower-de-en --preset paper precision=bfloat16 "$@"
    both multi30k-paper multi30k-de-en --preset paper precision=bfloat16 "$@"
    run tatoeba-paper-qrnn tatoeba-de-en --preset paper precision=bfloat16 "$@"
    # The paper's experiment, for those who have its data.
    both iwslt-paper iwslt --preset paper precision=bfloat16 "$@"
    ;;
esac

for name in ${ONLY:-}; do
    case " $known status " in
    *" $name "*) ;;
    *) fail "ONLY=$name: there is$known." ;;
    esac
done
if [ -n "$begun" ]; then "$quasirnn" compare $begun; fi
if [ -n "$missing" ]; then echo "Not begun:$missing" >&2; fi
