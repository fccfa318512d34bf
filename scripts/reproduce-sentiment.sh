#!/bin/sh
# The paper's classifier on IMDb: QRNN, the equal LSTM from the better of two starts, QRNN with a first layer of width 4,
# and the fast preset. Each run is started, or continued from where it stopped; a run that is finished is left alone.
#
#   DATA=folder   holds imdb/ or imdb.tar.xz, or aclImdb/, and the word vectors        RUNS=folder   where the runs go
#   VECTORS=file  other word vectors than DATA/glove.6B.100d.imdb.npz or DATA/glove.6B.100d.txt
#   Further arguments are KEY=VALUEs for every run of the paper's preset, such as epochs=3.
set -eu

quasirnn="$PWD/.venv/bin/quasirnn"
if [ -z "${DATA:-}" ] || [ ! -d "$DATA" ]; then
    echo "reproduce-sentiment: say where the corpus is: make reproduce-sentiment DATA=folder [RUNS=runs]." >&2
    echo "The folder holds imdb/, imdb.tar.xz or aclImdb/, and glove.6B.100d.txt or glove.6B.100d.imdb.npz." >&2
    exit 2
fi
data=$(cd "$DATA" && pwd)
if [ -n "${VECTORS:-}" ]; then vectors=$(cd "$(dirname "$VECTORS")" && pwd)/$(basename "$VECTORS")
elif [ -f "$data/glove.6B.100d.imdb.npz" ]; then vectors=$data/glove.6B.100d.imdb.npz
else vectors=$data/glove.6B.100d.txt
fi
if [ ! -f "$vectors" ]; then
    echo "reproduce-sentiment: $vectors: no such file; name the word vectors: VECTORS=file." >&2
    exit 2
fi
mkdir -p "$RUNS"
cd "$RUNS"
if [ ! -d imdb ]; then
    if [ -d "$data/imdb" ]; then ln -s "$data/imdb" imdb
    elif [ -d "$data/aclImdb" ]; then ln -s "$data/aclImdb" imdb
    elif [ -f "$data/imdb.tar.xz" ]; then tar xJf "$data/imdb.tar.xz"
    else echo "reproduce-sentiment: $data has neither imdb/, aclImdb/ nor imdb.tar.xz." >&2; exit 2
    fi
fi
ln -sf "$vectors" .

# A run that is stopped by a signal is saved and ends well: without this the next one would start.
trap 'exit 130' INT TERM

train() {
    run=$1
    shift
    echo "== $run" >&2
    "$quasirnn" train sentiment --data imdb --vectors "$(basename "$vectors")" --out "$run" --resume "$@"
    # Stopped in the middle by a signal of its own: its last record says so.
    if tail -n 1 "$run/metrics.jsonl" | grep -q '"reason": "signal"'; then exit 130; fi
}

# The accuracy of a run's first validation.
first_accuracy() {
    grep -m 1 '"event": "valid"' "$1/metrics.jsonl" | sed 's/.*"accuracy": \([0-9.]*\).*/\1/'
}

train imdb-paper-qrnn --preset paper precision=bfloat16 "$@"

# Two starts of the LSTM, 200 steps each; the better one on validation goes on.
for start in uniform orthogonal; do
    run=imdb-paper-lstm-$start
    if [ ! -f $run/metrics.jsonl ] || ! grep -q '"event": "valid"' $run/metrics.jsonl; then
        train $run --preset paper --cell lstm precision=bfloat16 lstm_start=$start max_steps=200
    fi
done
better=$(awk -v u="$(first_accuracy imdb-paper-lstm-uniform)" -v o="$(first_accuracy imdb-paper-lstm-orthogonal)" \
    'BEGIN { print (o > u) ? "orthogonal" : "uniform" }')
train imdb-paper-lstm-$better --preset paper --cell lstm precision=bfloat16 lstm_start=$better "$@" max_steps=none

train imdb-paper-qrnn-wide --preset paper precision=bfloat16 kernel_size=4,2,2,2 "$@"
train imdb-fast --preset fast
