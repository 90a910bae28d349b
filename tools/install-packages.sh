#!/bin/sh
# install-packages.sh SECTION...: install what tools/packages.txt lists under these sections and this machine lacks.
# Does nothing, and needs no root, where everything is there. PACKAGES_FILE names another list.
set -eu
list=${PACKAGES_FILE:-$(dirname "$0")/packages.txt}

wanted=
for section in "$@"; do
    found=$(awk -v section="[$section]" '
        { sub(/#.*/, "") }
        /^\[/ { inside = ($1 == section); if (inside) print "+"; next }
        inside && NF { print $1 }' "$list")
    if [ -z "$found" ]; then
        echo "install-packages: $list has no section [$section]" >&2
        exit 1
    fi
    wanted="$wanted $(echo "$found" | tr -d '+')"
done

if ! command -v dpkg >/dev/null 2>&1; then
    echo "install-packages: not a Debian system; these must be here already (Debian names): $wanted" >&2
    exit 0
fi

missing=
for package in $wanted; do
    case " $missing " in *" $package "*) continue ;; esac
    # A removed package whose settings stay is known to dpkg too, so the state is asked for.
    if ! dpkg -s "$package" 2>/dev/null | grep -q '^Status: install ok installed$'; then
        missing="$missing $package"
    fi
done
[ -n "$missing" ] || exit 0

if [ "$(id -u)" -ne 0 ]; then
    echo "install-packages: missing:$missing" >&2
    echo "install-packages: as root: apt-get install --no-install-recommends$missing" >&2
    exit 1
fi

# Mirrors fail now and then; the package lists may be absent or older than the mirror.
export DEBIAN_FRONTEND=noninteractive
install() {
    # shellcheck disable=SC2086 # a list of words
    apt-get install -y -q --no-install-recommends -o Acquire::Retries=3 $missing </dev/null
}
echo "installing:$missing"
# shellcheck disable=SC2086
if apt-get install -s -q $missing >/dev/null 2>&1 && install; then
    exit 0
fi
for attempt in 1 2 3; do
    if apt-get update -q -o Acquire::Retries=3 </dev/null && install; then
        exit 0
    fi
    echo "install-packages: attempt $attempt failed" >&2
    sleep $((attempt * 5))
done
echo "install-packages: could not install:$missing" >&2
exit 1
