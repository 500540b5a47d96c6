#!/usr/bin/env bash
# Make sure that the images of docker-compose.yml are there, and name them on standard output, one VARIABLE=name a line.
#
# The base image and Kafka's are taken if they are there, else pulled, else made here: Debian by debootstrap, Kafka
# from the jars that the embedded broker uses too. Ours is built every time, from Docker's cache where nothing changed.
# Images that BASE_IMAGE and KAFKA_IMAGE name are used as they are.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

readonly official_base=debian:bookworm-slim official_kafka=apache/kafka:4.3.1
readonly local_base=changelog-state-base:bookworm local_kafka=changelog-state-kafka:4.3.1
readonly runtime=changelog-state-runtime:test ours=changelog-state:test
# The base image is small: a registry that does not give it in this time is none that Kafka's should be waited for.
readonly base_pull_seconds=45 kafka_pull_seconds=300 build_seconds=900

scratch=$(mktemp --directory)
trap 'rm -rf "$scratch"' EXIT

say() {
    echo "-- $*" >&2
}

there() {
    docker image inspect "$1" >/dev/null 2>&1
}

pull() {
    timeout "$2" docker pull --quiet "$1" >/dev/null 2>&1
}

# Run a command; show what it says only if it fails.
quietly() {
    if ! "$@" >"$scratch/log" 2>&1; then
        tail -n 40 "$scratch/log" >&2
        echo "failed: $*" >&2
        return 1
    fi
}

build() {
    quietly timeout "$build_seconds" docker build --network host "$@"
}

make_base() {
    if [ "$(id -u)" != 0 ] || ! command -v debootstrap >/dev/null; then
        echo "$official_base cannot be pulled, and making a base image needs root and debootstrap:" \
            "provide these, or name an image in BASE_IMAGE" >&2
        return 1
    fi
    say "making $local_base with debootstrap, as $official_base cannot be pulled"
    local root=$scratch/base
    quietly timeout "$build_seconds" debootstrap --variant=minbase bookworm "$root" ${DEBIAN_MIRROR:-}
    # Whom this machine trusts in addition, its containers have to trust too: packages may come through a proxy.
    if compgen -G '/usr/local/share/ca-certificates/*.crt' >/dev/null; then
        install -D --mode 644 --target-directory "$root/usr/local/share/ca-certificates" \
            /usr/local/share/ca-certificates/*.crt
    fi
    printf 'path-exclude=/usr/share/%s/*\n' doc locale man >"$root/etc/dpkg/dpkg.cfg.d/slim"
    rm -rf "$root"/usr/share/{doc,locale,man}/* "$root"/var/cache/apt/archives/*.deb "$root"/var/lib/apt/lists/*
    tar -C "$root" -c . | quietly docker import - "$local_base"
    rm -rf "$root"
}

make_kafka() {
    say "building $local_kafka, as $official_kafka cannot be pulled"
    build --target runtime --tag "$runtime" --build-arg BASE_IMAGE="$base" .
    local context=$scratch/kafka
    cp -R tests/docker/kafka "$context"
    mkdir "$context/jars"
    .venv/bin/python -c 'from changelog_state.broker.jars import kafka_jars; print(*kafka_jars(), sep="\n")' |
        xargs cp --target-directory "$context/jars"
    build --tag "$local_kafka" --build-arg RUNTIME_IMAGE="$runtime" "$context"
}

base=${BASE_IMAGE:-}
kafka=${KAFKA_IMAGE:-}
if [ -z "$base" ]; then
    if there "$official_base"; then
        base=$official_base
    elif there "$local_base"; then
        base=$local_base
    elif pull "$official_base" "$base_pull_seconds"; then
        base=$official_base
    else
        make_base
        base=$local_base
    fi
fi
if [ -z "$kafka" ]; then
    if there "$official_kafka"; then
        kafka=$official_kafka
    elif [ "$base" != "$local_base" ] && pull "$official_kafka" "$kafka_pull_seconds"; then
        kafka=$official_kafka
    else
        make_kafka
        kafka=$local_kafka
    fi
fi
say "building $ours (Spark and Java make it about 1.2 GB)"
build --tag "$ours" --build-arg BASE_IMAGE="$base" .

echo "BASE_IMAGE=$base"
echo "KAFKA_IMAGE=$kafka"
echo "CHANGELOG_STATE_IMAGE=$ours"
