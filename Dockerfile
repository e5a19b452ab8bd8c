# A small container for CPUs, which does not run as root.
#
#   docker build -t fedassay .
#   docker run --rm --network none -v "$PWD:/data" --user "$(id -u)" fedassay run plan.yaml -o runs/release
#
# --build-arg EXTRA_INDEX=... names PyTorch's CPU wheel index (see PyTorch's installation page); without it pip takes
# torch's default build, which is several gigabytes larger. Exit codes are those of the command.
#
# The base is named by the digest of its content, and every package is one whose SHA-256 stands in locked.txt, or in
# locked-cuda.txt without an index of CPU wheels: all of a lock is fetched and compared, and what fedassay runs with is
# installed from these files alone.
FROM python:3.11-slim@sha256:9c900dea9e8fb7e16277c179b555cc72d29a352dbc33cff48ad5a0412fd5bfc7 AS base

FROM base AS build
ARG EXTRA_INDEX=""
COPY . /source
RUN locked=locked-cuda.txt \
 && if [ -n "$EXTRA_INDEX" ]; then locked=locked.txt; fi \
 && python -m venv /fedassay \
 && /fedassay/bin/python -m pip download --no-cache-dir ${EXTRA_INDEX:+--extra-index-url "$EXTRA_INDEX"} \
      --require-hashes -r "/source/$locked" --dest /files \
 && /fedassay/bin/python -m pip install --no-cache-dir --no-index --find-links /files "/source[sign]"

FROM base
COPY --from=build /fedassay /fedassay
# Whatever user runs it makes a cache of its own below /cache: one that others can write to is not read. USER keeps
# libraries from looking an unknown user's name up.
RUN useradd --uid 10001 --create-home assay && mkdir -m 1777 /cache /data
ENV PATH=/fedassay/bin:$PATH FEDASSAY_CACHE=/cache/fedassay HOME=/cache USER=assay PYTHONDONTWRITEBYTECODE=1
USER 10001
WORKDIR /data
ENTRYPOINT ["fedassay"]
CMD ["--help"]
