#!/bin/sh
# Runs a program of another processor in a root folder of its system:
#
#     unshare --user --map-root-user --mount tools/emulated_root.sh ROOT QEMU REPOSITORY PROGRAM ...
#
# The kernel passes programs for 64-bit Arm to QEMU, in this namespace only: nothing is left behind.
set -e
root=$1 qemu=$2 repository=$3
shift 3
binfmt=/proc/sys/fs/binfmt_misc
# An ELF header: 64 bits, little-endian, a program or shared object, EM_AARCH64.
header='\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00'
mask='\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff'
mount -t binfmt_misc none $binfmt
printf '%s' ":aarch64:M::$header:$mask:$qemu:F" > $binfmt/register
for folder in proc dev; do
    mount --rbind "/$folder" "$root/$folder"
done
mount --bind "$repository" "$root/repository"
exec chroot "$root" "$@"
