# The broker in a container: drop-in for the official emulator, without its SQL Server.

FROM python:3.13-slim-bookworm AS build

# The AMQP engine comes as C source. No version is pinned: Debian keeps one, and drops the others.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends gcc libc6-dev \
    && rm -rf /var/lib/apt/lists/*

WORKDIR /source
RUN python -m venv /opt/peeklock
ENV PATH=/opt/peeklock/bin:$PATH

# Dependencies first: they are compiled again only when they change.
COPY pyproject.toml constraints.txt ./
RUN python -c "import tomllib; project = tomllib.load(open('pyproject.toml', 'rb'))['project']; print(*project['dependencies'], *project['optional-dependencies']['postgresql'], sep='\n')" > requirements.txt \
    && pip install --no-cache-dir --constraint constraints.txt --requirement requirements.txt

COPY README.md LICENSE setup.py ./
COPY config config
COPY storage storage
COPY protocol protocol
COPY broker broker
COPY peeklock peeklock
RUN pip install --no-cache-dir --no-deps . \
    && python -m compileall -q /opt/peeklock/lib


FROM python:3.13-slim-bookworm

RUN groupadd --system --gid 10001 peeklock \
    && useradd --system --uid 10001 --gid peeklock --no-create-home peeklock \
    && install --directory --owner=peeklock --group=peeklock /data /ServiceBus_Emulator/ConfigFiles
COPY --from=build /opt/peeklock /opt/peeklock

ENV PATH=/opt/peeklock/bin:$PATH \
    PEEKLOCK_HOST=0.0.0.0 \
    PEEKLOCK_STORAGE=sqlite:////data/peeklock.db \
    PEEKLOCK_TLS_FOLDER=/data/tls

USER 10001:10001
VOLUME /data
# AMQP, AMQP over TLS, administration and health. Entities are read from PEEKLOCK_CONFIG, or from
# /ServiceBus_Emulator/ConfigFiles/Config.json if something is mounted or copied there, as Aspire and
# Testcontainers do; they expect the folder to exist.
EXPOSE 5672 5671 5300

HEALTHCHECK --interval=5s --timeout=3s --start-period=30s --retries=3 \
    CMD ["python", "-c", "import http.client, os, sys; port = os.environ.get('PEEKLOCK_HTTP_PORT') or os.environ.get('EMULATOR_HTTP_PORT') or '5300'; probe = http.client.HTTPConnection('127.0.0.1', int(port), timeout=2); probe.request('GET', '/health'); sys.exit(probe.getresponse().status != 200)"]

ENTRYPOINT ["peeklock"]
CMD ["serve"]
