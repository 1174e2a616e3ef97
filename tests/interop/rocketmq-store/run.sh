#!/bin/sh
# Usage: run.sh VERSION PROGRAM ARGS…
#   VERSION: 5.3.3 | 4.9.8
#   PROGRAM: StoreWrite | StoreRead | StoreBench
# The first call builds the kit. JAVA_OPTS adds options for the JVM (heap size).
set -e
here=$(cd "$(dirname "$0")" && pwd)
if [ $# -lt 2 ] || [ ! -d "$here/v$1" ]; then sed -n '2,5p' "$0" >&2; exit 2; fi
version=$1 program=$2 built=$here/v$1/target
shift 2
mkdir -p "$here/target"
(
    flock 9
    stamp=$here/target/built-$version
    sources() { find "$here/src" "$here/pom.xml" "$here/v$version/pom.xml" "$@" -print -quit; }
    if [ ! -e "$stamp" ] || [ -n "$(sources -newer "$stamp")" ]; then
        (cd "$here" && mvn -q -B -pl "v$version" package >&2)
        touch "$stamp"
    fi
) 9>"$here/target/lock"
opens="--add-opens=java.base/java.nio=ALL-UNNAMED --add-opens=java.base/sun.nio.ch=ALL-UNNAMED"
opens="$opens --add-exports=java.base/jdk.internal.ref=ALL-UNNAMED"
opens="$opens --add-opens=java.base/jdk.internal.ref=ALL-UNNAMED"
opens="$opens --add-opens=java.base/java.lang=ALL-UNNAMED --add-opens=java.base/java.util=ALL-UNNAMED"
exec java $opens ${JAVA_OPTS:--Xms512m -Xmx1g} -cp "$built/classes:$built/lib/*" "interop.$program" "$@"
