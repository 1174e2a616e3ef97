#!/bin/sh
# run.sh PROGRAM ARGS…   builds the kit when needed, then becomes the Java program.
# Environment: BK_VERSION (Apache BookKeeper release), JAVA_OPTS (heap and so on), KIT_LOG (log level, default WARN).
set -e
dir=$(CDPATH= cd -- "$(dirname -- "$0")" && pwd)
version=${BK_VERSION:-4.17.3}
out=$dir/target/$version
stale() {
    [ ! -f "$out/built" ] || [ -n "$(find "$dir/src" "$dir/pom.xml" -type f -newer "$out/built" -print | head -n 1)" ]
}
if stale; then
    mkdir -p "$dir/target"
    (
        flock 9
        if stale; then
            mvn -q -B -ntp -f "$dir/pom.xml" -Dbookkeeper.version="$version" process-classes >&2
            touch "$out/built"
        fi
    ) 9>"$dir/target/build.lock"
fi
[ $# -ge 1 ] || { echo "usage: run.sh PROGRAM ARGS…   (see README.md)" >&2; exit 64; }
[ "$1" = build ] && exit 0
program=$1
shift
case $program in
    ZooKeeper|Bookie|AutoRecovery) default="-Xms128m -Xmx1g -XX:MaxDirectMemorySize=1g" ;;
    *) default="-Xms64m -Xmx512m -XX:+UseSerialGC -XX:TieredStopAtLevel=1" ;;   # short-lived: start fast
esac
exec java ${JAVA_OPTS:-$default} -Djava.net.preferIPv4Stack=true -Dkit.log="${KIT_LOG:-WARN}" \
    --add-opens=java.base/java.lang=ALL-UNNAMED --add-opens=java.base/java.io=ALL-UNNAMED \
    --add-opens=java.base/sun.nio.ch=ALL-UNNAMED --add-opens=java.base/jdk.internal.platform=ALL-UNNAMED \
    -cp "$out/classes:$(cat "$out/classpath")" "interop.$program" "$@"
