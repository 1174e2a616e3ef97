#!/bin/sh
# Usage: run.sh VERSION PROGRAM ARGS…
#   VERSION: 5.3.3 | 4.9.7
#   PROGRAM: a class of src/main/java/interop; its arguments stand at its head
# The first call builds the kit. JAVA_OPTS replaces the heap settings, RMQ_HOME (default: target/home) takes
# logs and what clients store.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
case "${1:-}" in 5.3.3|4.9.7) ;; *) sed -n '2,6p' "$0" >&2; exit 2 ;; esac
[ $# -ge 2 ] || { sed -n '2,6p' "$0" >&2; exit 2; }
version=$1 program=$2 built=$here/target/$1
shift 2
mkdir -p "$here/target"
(
    flock 9
    stamp=$here/target/built-$version
    if [ ! -e "$stamp" ] || [ -n "$(find "$here/src" "$here/pom.xml" -newer "$stamp" -print -quit)" ]; then
        mvn -q -B -f "$here/pom.xml" -Drmq="$version" process-classes >&2
        touch "$stamp"
    fi
) 9>"$here/target/lock"
[ "$program" != Build ] || exit 0
heap="-Xms128m -Xmx512m"
[ "$program" != Broker ] || heap="-Xms512m -Xmx1g -XX:MaxDirectMemorySize=2g"
home=${RMQ_HOME:-$here/target/home}
mkdir -p "$home"
opens="--add-exports=java.base/jdk.internal.ref=ALL-UNNAMED --add-exports=java.base/sun.nio.ch=ALL-UNNAMED"
opens="$opens --add-opens=java.base/sun.nio.ch=ALL-UNNAMED --add-opens=java.base/java.nio=ALL-UNNAMED"
opens="$opens --add-opens=java.base/java.lang=ALL-UNNAMED --add-opens=java.base/jdk.internal.ref=ALL-UNNAMED"
# shellcheck disable=SC2086
exec java ${JAVA_OPTS:-$heap} -XX:+UseG1GC -Duser.home="$home" -Drocketmq.log.root="$home/logs" \
    -Drocketmq.client.logRoot="$home/logs" -Drmq.log="$home/logs/server.log" -Drocketmq.home.dir="$built/classes" \
    $opens -cp "$built/classes:$built/lib/*" "interop.$program" "$@"
