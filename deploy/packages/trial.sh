#!/bin/sh
# Tries the packages of one build on a Debian without Rust and without a network, as root of that Debian: each is installed, used and
# removed. `cargo xtask dist` boots one for it: /trial/dist has the packages, /trial/earlier a Debian package of an earlier version.
set -eu

say() { printf '\n--- %s\n' "$*"; }
fail() { printf 'FAILED: %s\n' "$*" >&2; exit 1; }

# A lease, its token, and a server that answers: `try COMMAND...` is the fencehold to try.
try() {
    token=$(XDG_STATE_HOME=/tmp/trial "$@" run --key demo -- sh -c 'echo $FENCEHOLD_TOKEN')
    case $token in
        '' | *[!0-9]*) fail "no token but: $token" ;;
    esac
    echo "token $token"
    XDG_STATE_HOME=/tmp/trial "$@" serve --listen 127.0.0.1:7117 > /tmp/serve.log 2>&1 &
    server=$!
    answers "$@"
    kill "$server"
    wait "$server" || fail "the server ended with $?: $(cat /tmp/serve.log)"
    rm -rf /tmp/trial
}

# Clients retry while the server is not there yet.
answers() {
    "$@" --store http://127.0.0.1:7117 --timeout 20s lease ls > /dev/null || fail "no answer: $(cat /tmp/serve.log)"
    echo "the server answers"
}

gone() {
    # The shell remembers where it found a program.
    hash -r
    ! command -v fencehold > /dev/null || fail "$(command -v fencehold) is left"
}

# What is called fencehold, but for the folders named.
left() {
    set -- /proc /sys /tmp /trial "$@"
    for folder; do
        set -- "$@" -path "$folder" -prune -o
        shift
    done
    find / -xdev "$@" -name '*fencehold*' -prune -print | sort | tr '\n' ' '
}

say pip
python3 -m venv /tmp/venv
/tmp/venv/bin/pip install --quiet --no-index /trial/dist/*.whl
try /tmp/venv/bin/fencehold
/tmp/venv/bin/python -m fencehold_server version
/tmp/venv/bin/fencehold-server --help > /dev/null
/tmp/venv/bin/pip uninstall --quiet --yes fencehold-server
left=$(find /tmp/venv -name '*fencehold*')
[ -z "$left" ] || fail "pip left $left"
rm -rf /tmp/venv

say npm
mkdir /tmp/npm
cd /tmp/npm
npm install --silent --ignore-scripts --offline --no-audit --no-fund /trial/dist/fencehold-*[0-9].tgz /trial/dist/fencehold-linux-x64-*.tgz
npx --no-install fencehold version
try node_modules/.bin/fencehold
mv node_modules/@fencehold /tmp/elsewhere
if node_modules/.bin/fencehold version 2> /tmp/missing; then fail "it ran without the binary"; fi
grep -q 'is not installed' /tmp/missing || fail "$(cat /tmp/missing)"
cd /
rm -rf /tmp/npm /tmp/elsewhere

say tarball
cd /tmp
(cd /trial/dist && sha256sum --check --quiet SHA256SUMS)
tar -xzf /trial/dist/fencehold-*-unknown-linux-gnu.tar.gz
try /tmp/fencehold-*/fencehold
rm -rf /tmp/fencehold-*
cd /

say 'dpkg: install, upgrade, remove, purge'
gone
dpkg --install /trial/earlier/fencehold_*.deb
try fencehold
[ -f /usr/share/man/man1/fencehold.1.gz ] || fail 'there is no manual page'
[ -f /usr/share/bash-completion/completions/fencehold ] || fail 'there are no completions'
systemd-analyze verify /usr/lib/systemd/system/fencehold.service
as_server() { setpriv --reuid fencehold --regid fencehold --clear-groups env FENCEHOLD_STORE=file:/var/lib/fencehold "$@"; }
as_server fencehold store create
as_server fencehold job enqueue --queue kept --kind mail --payload '{"to":"ada"}' > /dev/null
echo '# mine' >> /etc/fencehold/server.toml
systemctl start fencehold || fail "$(journalctl --no-pager --unit fencehold)"
answers fencehold
before=$(systemctl show --property MainPID --value fencehold)
dpkg --install /trial/dist/fencehold_*.deb
answers fencehold
after=$(systemctl show --property MainPID --value fencehold)
[ "$before" != "$after" ] || fail 'the upgrade did not restart the server'
fencehold --store http://127.0.0.1:7117 job ls --queue kept | grep -q mail || fail 'the upgrade lost a job'
tail -1 /etc/fencehold/server.toml | grep -q '# mine' || fail 'the upgrade lost the settings'
dpkg --remove fencehold
! systemctl is-active --quiet fencehold || fail 'the server runs on after the removal'
gone
# Debian masks the unit of a package whose settings are still there; dpkg and systemd keep notes.
[ "$(left /var/lib/dpkg /var/lib/systemd)" = '/etc/fencehold /etc/systemd/system/fencehold.service /var/lib/fencehold ' ] \
    || fail "removal left $(left)"
dpkg --purge fencehold
[ -z "$(left)" ] || fail "purge left $(left)"
! getent passwd fencehold || fail 'purge left the user'

say 'every package works'
touch /trial/passed
