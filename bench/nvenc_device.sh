#!/bin/bash
# NVENC's tests on a GPU machine without NVENC and without a network: the real wheel and the real NVDEC, the double below.
# On the machine it is built on:    make -C tests/nvenc_shim carry    (build/nvenc_shim.tar.xz, 3 MB, is to travel along)
# There, about 2 minutes:           bash bench/nvenc_device.sh [FOLDER with bundles of Python packages and unpack.sh]
# With a card that has NVENC:       GPUPIPE_REQUIRE_CUDA=1 python3 -m pytest -m nvenc tests/gpu
set -uo pipefail
bundles=${1:-.bundle} out=${OUT:-/tmp/nvenc} place=$PWD/tests/nvenc_shim/build
[ -f "$bundles/unpack.sh" ] && . "$bundles/unpack.sh" "$bundles"
mkdir -p "$place" "$out"
python3 -c 'import sys, tarfile; tarfile.open(sys.argv[1]).extractall(sys.argv[2], filter="tar")' \
  tests/nvenc_shim/build/nvenc_shim.tar.xz "$place" || exit 2  # there may be no xz
export LD_LIBRARY_PATH=$place/shim${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} PATH=$place:$PATH
export PYTHONPATH=$PWD${PYTHONPATH:+:$PYTHONPATH} PYTHONUNBUFFERED=1 GPUPIPE_REQUIRE_CUDA=1
env -u LD_LIBRARY_PATH ldd "$place/shim/libnvidia-encode.so.1" | grep -i 'not found' && exit 2
nvidia-smi --query-gpu=name,driver_version --format=csv,noheader
python3 -c 'import PyNvVideoCodec as n; print(n.__version__, n._PyNvVideoCodec.__file__, n.GetEncoderCaps(gpuid=0, codec="hevc")["num_max_bframes"])' || exit 2
timeout "${LIMIT:-210}" python3 -m pytest -q -rA -n "${WORKERS:-4}" -p no:cacheprovider -p no:benchmark -m nvenc --timeout 60 --durations 8 \
  tests/gpu/test_nvenc_order_gpu.py tests/gpu/test_nvenc_gpu.py tests/nvenc_shim/test_wheel_options.py \
  -p bench.told --told "$out/nvenc.json" > "$out/nvenc-tests.log" 2>&1
code=$?
grep -E ' dB$|copies  |bytes, of them|libnvidia-encode is' "$out/nvenc-tests.log"
grep -E '^(E  |FAILED|ERROR|SKIPPED|[0-9.]+s )|passed|failed' "$out/nvenc-tests.log" | cut -c1-300 | tail -n 70
exit $code
