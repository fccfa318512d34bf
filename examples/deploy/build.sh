#!/bin/sh
# build.sh OUTPUT: compiles main.cpp against the torch of this Python (PYTHON=..., default python3).
set -e
torch=$("${PYTHON:-python3}" -c 'import os, torch; print(os.path.dirname(torch.__file__))')
exec "${CXX:-g++}" -std=c++20 -O1 "$(dirname "$0")/main.cpp" -o "$1" -I "$torch/include" \
  -L "$torch/lib" -Wl,-rpath,"$torch/lib" -Wl,--no-as-needed -ltorch -ltorch_cpu -lc10 -ldl
