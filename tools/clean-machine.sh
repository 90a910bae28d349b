#!/bin/bash
# clean-machine.sh [FOLDER]: does the repository work on a machine that has just been installed?
#
# Makes a minimal Debian 12 in FOLDER (build/chroot) with git and make added and nothing else, clones HEAD into it, runs
# `make demo` there, and `make test` in a second, equally fresh copy. Reports both exit codes; succeeds when both are 0.
# Needs root, debootstrap and a Debian mirror, which is taken from this machine's /etc/apt. KEEP=1 leaves the chroots.
# STOP_AFTER_CLONE=1 ends once the clone is there.
set -u
cd "$(dirname "$0")/.." || exit 1
folder=${1:-build/chroot}
release=bookworm

fail() {
    echo "clean-machine: $*" >&2
    exit 1
}
[ "$(id -u)" -eq 0 ] || fail 'making a chroot needs root'
command -v debootstrap >/dev/null || fail 'needs debootstrap: apt-get install debootstrap'

# `URI SUITE` for every source of apt, in both of its formats.
apt_sources() {
    local file
    for file in /etc/apt/sources.list /etc/apt/sources.list.d/*.list; do
        [ -f "$file" ] && awk '$1 == "deb" { sub(/\[[^]]*\]/, ""); print $2, $3 }' "$file"
    done
    for file in /etc/apt/sources.list.d/*.sources; do
        [ -f "$file" ] && awk '
            function flush(   i, j) {
                if (binary) for (i = 1; i <= uris; i++) for (j = 1; j <= suites; j++) print uri[i], suite[j]
                uris = suites = 0; binary = 0
            }
            /^[ \t]*$/ { flush() }
            /^Types:/ { binary = / deb( |$)/ }
            /^URIs:/ { for (i = 2; i <= NF; i++) uri[++uris] = $i }
            /^Suites:/ { for (i = 2; i <= NF; i++) suite[++suites] = $i }
            END { flush() }' "$file"
    done
}
mirror=$(apt_sources | awk -v release=$release '$2 == release { print $1; exit }')
[ -n "$mirror" ] || fail "no source for $release in /etc/apt"

mkdir -p "$folder" || exit 1
folder=$(cd "$folder" && pwd)
mounted=()
unmount_all() {
    local i
    for ((i = ${#mounted[@]} - 1; i >= 0; i--)); do
        umount "${mounted[i]}" 2>/dev/null || umount -l "${mounted[i]}"
    done
    mounted=()
}
trap unmount_all EXIT
trap 'exit 130' INT TERM

remove() {
    # Never through a mount that would not go away.
    [ ! -e "$1" ] || rm -rf --one-file-system "$1"
}

mount_in() {
    local root=$1 name
    for name in proc sys; do
        if mount --bind "/$name" "$root/$name" 2>/dev/null; then
            mounted+=("$root/$name")
        else
            echo "clean-machine: /$name is not there in the chroot (mount refused)" >&2
        fi
    done
}

base=$folder/base
remove "$base"
echo "== a minimal $release in $base"
debootstrap --variant=minbase --include=git,make $release "$base" "$mirror" >"$folder/debootstrap.log" 2>&1 || {
    tail -n 20 "$folder/debootstrap.log" >&2
    fail "debootstrap failed, see $folder/debootstrap.log"
}
# The same mirror, updates and security as here, and how to reach them.
apt_sources | awk -v release=$release 'index($2, release) == 1 { print "deb", $1, $2, "main" }' >"$base/etc/apt/sources.list"
apt-config dump | grep -E '^Acquire::(https?::Proxy|Check-Valid-Until|Check-Date) ' >"$base/etc/apt/apt.conf.d/90mirror"
cp -L /etc/resolv.conf "$base/etc/resolv.conf"
printf '#!/bin/sh\nexit 101\n' >"$base/usr/sbin/policy-rc.d" && chmod 755 "$base/usr/sbin/policy-rc.d"
for name in gcc cc clang python3; do
    [ ! -e "$base/usr/bin/$name" ] || fail "the fresh system already has $name: it would prove nothing"
done

in_chroot() {
    local root=$1
    shift
    env -i HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 TERM=dumb chroot "$root" "$@" </dev/null
}
echo "== clone $(git rev-parse --short HEAD)"
git bundle create --quiet "$base/root/tally.bundle" HEAD || fail 'could not bundle the repository'
in_chroot "$base" git -c advice.detachedHead=false clone --quiet /root/tally.bundle /root/tally || fail 'could not clone in the chroot'
[ -z "${STOP_AFTER_CLONE:-}" ] || {
    in_chroot "$base" ls /root/tally
    exit 0
}

run_target() {
    local target=$1 root=$folder/$1 code
    remove "$root"
    cp -a --reflink=auto "$base" "$root" || fail "could not copy $base"
    mount_in "$root"
    echo "== make $target in $root"
    in_chroot "$root" make -C /root/tally "$target" >"$folder/$target.log" 2>&1
    code=$?
    tail -n 25 "$folder/$target.log"
    unmount_all
    [ -n "${KEEP:-}" ] || remove "$root"
    return $code
}
run_target demo
demo=$?
run_target test
test=$?
[ -n "${KEEP:-}" ] || remove "$base"
echo "make demo: exit $demo; make test: exit $test (logs in $folder)"
[ $demo -eq 0 ] && [ $test -eq 0 ]
