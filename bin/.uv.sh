# Sourced by bin/veen and bin/test, which set $root, the checkout. Sets $uv.
#
# uv is taken from PATH if it is there and recent enough; else a copy of its own is put
# into $root/.tools, with pip, once. Outside the checkout only download caches change.

uv_version=0.13.7

# Trust the authorities that this machine trusts: a network may have one of its own.
export UV_SYSTEM_CERTS="${UV_SYSTEM_CERTS:-1}" UV_NATIVE_TLS="${UV_NATIVE_TLS:-1}"

say() { printf '%s: %s\n' "${0##*/}" "$*" >&2; }

die() {
    say "$*"
    exit 1
}

told=
setting_up() {
    [ -n "$told" ] || say "setting up in $root/.tools, this once"
    told=yes
}

find_python() {
    # Each is run, not only looked for: a version manager's shim may lead nowhere.
    for python in python3 python3.14 python3.13 python3.12 python3.11; do
        "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && return
    done
    die "needs Python 3.11 or newer, and found none on PATH. Install one, or install uv."
}

# Makes $uv. Works in a folder of this process and moves the finished program into place,
# so two that start at once, or one that is stopped half way, leave nothing broken.
install_uv() {
    find_python
    setting_up
    work=$root/.tools/setup.$$
    trap 'rm -rf "$work"' EXIT
    trap 'exit 1' HUP INT TERM
    mkdir -p "$work" "${uv%/*}" || die "cannot write to $root/.tools"
    # In a virtual environment; where Python comes without them, by the pip it has.
    # The two settings undo what would forbid or misdirect either.
    export PIP_USER=0 PIP_REQUIRE_VIRTUALENV=0
    {
        "$python" -m venv "$work/uv" && "$work/uv/bin/python" -m pip install -q "uv==$uv_version"
    } >"$work/log" 2>&1 || {
        rm -rf "$work/uv"
        "$python" -m pip install -q --target "$work/uv" "uv==$uv_version"
    } >>"$work/log" 2>&1 || {
        cat "$work/log" >&2
        die "could not install uv with $(command -v "$python"), see above. Install uv, or Python's venv" \
            "module (on Debian: apt install python3-venv), and check that pip can reach its package index."
    }
    mv -f "$work/uv/bin/uv" "$uv" || die "cannot write to $root/.tools"
    rm -rf "$work"
    trap - EXIT HUP INT TERM
}

case $(uv --version 2>/dev/null) in
"uv 0."[0-7].* | "") # too old for uv.lock, or not there
    uv=$root/.tools/uv-$uv_version/uv
    [ -x "$uv" ] || install_uv
    ;;
*) uv=uv ;;
esac

# Runs a program of the workspace: in_environment NAME UV_RUN_OPTION... PROGRAM ARGUMENT...
# The environment is $root/.tools/NAME, brought in line with uv.lock if it is not.
in_environment() {
    export UV_PROJECT_ENVIRONMENT="$root/.tools/$1"
    shift
    [ -d "$UV_PROJECT_ENVIRONMENT" ] || setting_up
    unset VIRTUAL_ENV # another project's; uv would warn about it
    exec "$uv" run --quiet --frozen --project "$root" "$@"
}
