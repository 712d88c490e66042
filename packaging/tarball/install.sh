#!/bin/sh
# Verifies the files of this directory against SHA256SUMS, and copies them. Downloads nothing and starts nothing.
#
#   ./install.sh [--verify] [--prefix DIR]
#
# --verify copies nothing. DIR is /usr/local by default. The configuration goes to /etc/agent-watchdog, unless there is
# one. DESTDIR is put before every path.
set -eu

prefix=/usr/local
verify_only=no
while [ $# -gt 0 ]; do
    case "$1" in
    --verify) verify_only=yes ;;
    --prefix)
        prefix=${2:?--prefix needs a directory}
        shift
        ;;
    *)
        echo "usage: $0 [--verify] [--prefix DIR]" >&2
        exit 2
        ;;
    esac
    shift
done
case "$prefix" in
/*) ;;
*)
    echo "error: $prefix is not an absolute path" >&2
    exit 2
    ;;
esac

cd "$(dirname "$0")"
if ! sha256sum -c SHA256SUMS >/dev/null; then
    echo "error: the files differ from SHA256SUMS; nothing was installed" >&2
    exit 1
fi
echo "verified $(wc -l <SHA256SUMS) files"
if [ "$verify_only" = yes ]; then
    exit 0
fi

destination=${DESTDIR:-}
config=$destination/etc/agent-watchdog/config.toml
find root/usr -type f | while read -r file; do
    mode=644
    if [ -x "$file" ]; then mode=755; fi
    # install replaces a running program instead of writing to it.
    install -D -m "$mode" "$file" "$destination$prefix/${file#root/usr/}"
done
unit=$destination$prefix/lib/systemd/system/watchdogd.service
sed "s|^ExecStart=/usr/bin/|ExecStart=$prefix/bin/|" root/usr/lib/systemd/system/watchdogd.service >"$unit"
if [ -e "$config" ]; then
    echo "kept $config"
else
    install -D -m 644 root/etc/agent-watchdog/config.toml "$config"
fi
echo "installed in $destination$prefix. To start the daemon:"
echo "    systemctl daemon-reload && systemctl enable --now watchdogd"
