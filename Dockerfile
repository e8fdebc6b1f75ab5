# CUDA's runtime libraries and the NVIDIA container toolkit's driver; everything else by the Makefile's own commands.
#   docker build -t gpupipe .
#   docker run --rm --gpus all -v "$PWD:/work" gpupipe run config.yaml in.mov out.mp4
FROM nvidia/cuda:13.0.1-runtime-ubuntu24.04

SHELL ["/bin/bash", "-euo", "pipefail", "-c"]

# The newest ffmpeg, make and python of the pinned Ubuntu release are wanted, for its security fixes.
# hadolint ignore=DL3008
RUN apt-get update \
 && apt-get install -y --no-install-recommends make python3 python3-venv ffmpeg wget \
 && rm -rf /var/lib/apt/lists/*

WORKDIR /opt/gpupipe/src
COPY Makefile pyproject.toml README.md LICENSE ./
COPY gpupipe ./gpupipe
COPY models ./models
COPY configs ./configs
ARG TORCH=torch==2.13.0
RUN make install VENV=/opt/gpupipe/venv EDITABLE= EXTRAS=gpu,metrics,models,farm TORCH="${TORCH}" \
 && useradd --create-home --uid 10001 --user-group gpupipe

# video: NVDEC and NVENC; compute: CUDA; utility: nvidia-smi and NVML, which `gpupipe doctor` reads.
ENV NVIDIA_VISIBLE_DEVICES=all \
    NVIDIA_DRIVER_CAPABILITIES=compute,video,utility \
    PATH=/opt/gpupipe/venv/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1

USER 10001:10001
WORKDIR /work
ENTRYPOINT ["gpupipe"]
CMD ["--help"]
