# A small container for CPUs, which does not run as root.
#
#   docker build -t fedassay .
#   docker run --rm --network none -v "$PWD:/data" --user "$(id -u)" fedassay run plan.yaml -o runs/release
#
# --build-arg EXTRA_INDEX=... names PyTorch's CPU wheel index (see PyTorch's installation page); without it pip takes
# torch's default build, which is several gigabytes larger. Exit codes are those of the command.
FROM python:3.11-slim AS build
ARG EXTRA_INDEX=""
COPY . /source
RUN python -m venv /fedassay \
 && /fedassay/bin/python -m pip install --no-cache-dir ${EXTRA_INDEX:+--extra-index-url "$EXTRA_INDEX"} \
      -c /source/constraints.txt /source

FROM python:3.11-slim
COPY --from=build /fedassay /fedassay
# Whatever user runs it makes a cache of its own below /cache: one that others can write to is not read. USER keeps
# libraries from looking an unknown user's name up.
RUN useradd --uid 10001 --create-home assay && mkdir -m 1777 /cache /data
ENV PATH=/fedassay/bin:$PATH FEDASSAY_CACHE=/cache/fedassay HOME=/cache USER=assay PYTHONDONTWRITEBYTECODE=1
USER 10001
WORKDIR /data
ENTRYPOINT ["fedassay"]
CMD ["--help"]
