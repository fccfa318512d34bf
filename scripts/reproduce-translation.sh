#!/bin/sh
# The paper's translator from German to English, characters throughout: on Multi30k with the QRNN and the equal LSTM, on
# Tatoeba, and on Tatoeba, TED, Multi30k and MSCTD together; with IWSLT's own training text, if it is there, the paper's
# experiment itself. Each run is started, or continued from where it stopped; a run that is finished is left alone. At
# last every run is tested, greedily and with the paper's beam, and the figures are put beside it.
#
#   DATA=folder   holds multi30k-de-en/, tatoeba-de-en/, iwslt-ted-de-en/, msctd-de-en/ or their .tar.xz, and, for the
#                 paper's own experiment, iwslt/ with train.tags.de-en.de and IWSLT's XML, as it is published
#   RUNS=folder   where the runs go
#   ONLY="..."    of multi30k, tatoeba, together, iwslt: these alone       THREADS=number   torch's, for each run
#   Further arguments are KEY=VALUEs for every run, such as epochs=3.
set -eu

quasirnn="$PWD/.venv/bin/quasirnn"
if [ -z "${DATA:-}" ] || [ ! -d "$DATA" ]; then
    echo "reproduce-translation: say where the corpora are: make reproduce-translation DATA=folder [RUNS=runs]." >&2
    echo "The folder holds multi30k-de-en, tatoeba-de-en, iwslt-ted-de-en and msctd-de-en, or their archives." >&2
    exit 2
fi
data=$(cd "$DATA" && pwd)
only=${ONLY:-multi30k tatoeba together iwslt}
if [ -n "${THREADS:-}" ]; then export OMP_NUM_THREADS="$THREADS"; fi
RUNS=${RUNS:-runs}
mkdir -p "$RUNS"
cd "$RUNS"

# A run that is stopped by a signal is saved and ends well: without this the next one would start.
trap 'exit 130' INT TERM

unpacked() {
    if [ -d "$1" ]; then return; fi
    if [ -d "$data/$1" ]; then ln -s "$data/$1" "$1"
    elif [ -f "$data/$1.tar.xz" ]; then
        # Elsewhere first: half a corpus must not be taken for a whole one.
        rm -rf "$1.part" && mkdir "$1.part" && tar xJf "$data/$1.tar.xz" -C "$1.part" && mv "$1.part/$1" "$1"
        rmdir "$1.part"
    else echo "reproduce-translation: $data has neither $1/ nor $1.tar.xz." >&2; exit 2
    fi
}

train() {
    run=$1
    shift
    echo "== $run" >&2
    "$quasirnn" train translation --preset paper --out "$run" --resume precision=bfloat16 "$@"
    # Stopped in the middle by a signal of its own: its last record says so.
    if tail -n 1 "$run/metrics.jsonl" | grep -q '"reason": "signal"'; then exit 130; fi
}

# RUN NAME and what evaluate takes: the figures go to RUN/test-NAME-beam1.json (greedy) and -beam8.json, unless those
# that are there are newer than the model.
evaluated() {
    run=$1 name=$2
    shift 2
    for beam in 1 8; do
        figures=$run/test-$name-beam$beam.json
        if [ ! -f "$figures" ] || [ "$run/model.safetensors" -nt "$figures" ]; then
            echo "== $run on $name, beam $beam" >&2
            "$quasirnn" evaluate "$run" "$@" --beam $beam --json > "$figures.part"
            mv "$figures.part" "$figures"
        fi
    done
}

for part in $only; do
    case $part in
    multi30k)
        unpacked multi30k-de-en
        for cell in qrnn lstm; do
            train multi30k-paper-$cell --data multi30k-de-en --cell $cell "$@"
            evaluated multi30k-paper-$cell multi30k
        done
        ;;
    tatoeba)
        unpacked tatoeba-de-en
        train tatoeba-paper-qrnn --data tatoeba-de-en "$@"
        evaluated tatoeba-paper-qrnn tatoeba
        ;;
    together)
        for each in tatoeba iwslt-ted multi30k msctd; do unpacked $each-de-en; done
        # TED's training subset is in lower case and tokenised: it is left out, and the cased sets that are neither
        # validation nor test take its place.
        train together-paper-qrnn --data tatoeba-de-en --data iwslt-ted-de-en --data multi30k-de-en --data msctd-de-en \
            train=TED.dev2010,TED.tst2010,TED.tst2011,TED.tst2012,TED.tst2015 valid=TED.tst2013 test=TED.tst2014 "$@"
        evaluated together-paper-qrnn ted --data iwslt-ted-de-en --split iwslt16.TED.tst2014
        evaluated together-paper-qrnn multi30k --data multi30k-de-en
        evaluated together-paper-qrnn tatoeba --data tatoeba-de-en
        ;;
    iwslt)
        # Not in the list of corpora that are at hand everywhere: the paper's experiment, for whoever has its data.
        if [ -d iwslt ] || [ -d "$data/iwslt" ]; then
            unpacked iwslt
            for cell in qrnn lstm; do
                train iwslt-paper-$cell --data iwslt --cell $cell "$@"
                evaluated iwslt-paper-$cell iwslt
            done
        elif [ -n "${ONLY:-}" ]; then
            echo "reproduce-translation: $data has no iwslt/, with train.tags.de-en.de and IWSLT's XML." >&2
            exit 2
        fi
        ;;
    *)
        echo "reproduce-translation: ONLY=$part: there is multi30k, tatoeba, together and iwslt." >&2
        exit 2
        ;;
    esac
done
