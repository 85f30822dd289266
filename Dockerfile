# The image of Pharos: Python, the pinned dependencies, the package. No shell is needed to run it, and nothing is written.
#   docker build -t pharos .            another base: --build-arg BASE=…
ARG BASE=python:3.13-slim

FROM ${BASE} AS build
WORKDIR /src
COPY requirements/run.txt requirements/run.txt
RUN python3 -m pip install --no-cache-dir --no-deps --prefix /install -r requirements/run.txt
COPY pyproject.toml README.md LICENSE ./
COPY pharos pharos
RUN python3 -m pip install --no-cache-dir --no-deps --prefix /install .

FROM ${BASE}
ARG VERSION=0.1.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="Pharos" \
      org.opencontainers.image.description="Sends each request for a language model to the engine that will answer first" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
COPY --from=build /install /usr/local
ENV PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 MALLOC_ARENA_MAX=2
USER 65532:65532
EXPOSE 8090 8081 9090
# The process itself, so that it gets SIGTERM; `docker exec` and `kubectl exec` find the same command.
ENTRYPOINT ["pharos"]
CMD ["serve"]
