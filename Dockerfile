# The image of every node in docker-compose.yml except Kafka's: Spark, the library, its command lines.
#
#   docker build --tag changelog-state .
#
# It takes packages from apt, PyPI and Maven Central. Where these are reached through a proxy with a certificate of
# its own, name a BASE_IMAGE that trusts it.
ARG BASE_IMAGE=debian:bookworm-slim

# What is needed at run time, and nothing that changes with the code.
FROM ${BASE_IMAGE} AS runtime
# Java's package links its manual pages, and fails where a slim base image has no directory for them.
RUN mkdir -p /usr/share/man/man1 \
    && apt-get update \
    && apt-get install --yes --no-install-recommends \
        ca-certificates openjdk-17-jre-headless openssl procps python3 tini \
    && apt-get clean && rm -rf /var/lib/apt/lists/*

# The locked packages, Spark's Kafka connector among Spark's own jars. Tests and headers of packages stay behind;
# bytecode is compiled here, because the user of the image may not write it.
FROM runtime AS packages
RUN apt-get update \
    && apt-get install --yes --no-install-recommends python3-venv \
    && apt-get clean && rm -rf /var/lib/apt/lists/*
ENV SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt \
    PIP_CERT=/etc/ssl/certs/ca-certificates.crt \
    UV_NO_CACHE=1 \
    UV_PYTHON_DOWNLOADS=never \
    UV_PROJECT_ENVIRONMENT=/opt/changelog-state
RUN python3 -m venv /opt/uv && /opt/uv/bin/pip install --quiet --no-cache-dir uv
WORKDIR /build
COPY pyproject.toml uv.lock ./
RUN /opt/uv/bin/uv sync --frozen --quiet --no-default-groups --no-install-project \
    && cd /opt/changelog-state/lib/python3*/site-packages \
    && rm -rf pyspark/data pyspark/examples pyspark/licenses pyspark/tests pyspark/*/tests pyarrow/include \
    && find . -type d -name tests -prune -exec rm -rf {} + \
    && ln -s "$PWD/pyspark" /opt/changelog-state/spark \
    && /opt/changelog-state/bin/python -m compileall -q -j 0 .
COPY changelog_state/errors.py changelog_state/
COPY changelog_state/broker changelog_state/broker
RUN XDG_CACHE_HOME=/build/cache /opt/changelog-state/bin/python -c \
        'from changelog_state.broker.jars import spark_connector_jars as jars; print(*jars(), sep="\n")' \
    | xargs cp --target-directory /opt/changelog-state/spark/jars

# The library, as a tree that is laid over the packages: a change of the code changes one small layer.
FROM packages AS library
COPY README.md LICENSE ./
COPY changelog_state changelog_state
COPY restore restore
RUN /opt/uv/bin/uv pip install --quiet --no-deps --compile-bytecode \
        --python /opt/changelog-state/bin/python --prefix /library .

FROM runtime
RUN useradd --uid 1000 --create-home spark \
    && install --directory --owner spark --group spark /state /data /tls
COPY --from=packages /opt/changelog-state /opt/changelog-state
COPY --from=library /library /opt/changelog-state
COPY containers/certificates containers/worker-node /usr/local/bin/
ENV PATH=/opt/changelog-state/bin:$PATH \
    SPARK_HOME=/opt/changelog-state/spark \
    PYSPARK_PYTHON=/opt/changelog-state/bin/python \
    PYTHONUNBUFFERED=1
USER spark
WORKDIR /home/spark
ENTRYPOINT ["tini", "--"]
CMD ["changelog-state", "--help"]
