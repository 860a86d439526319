#!/bin/sh
# Starts saker-server in a container, with arguments as the images of Redis and Valkey take them:
#
#     saker                                  all defaults
#     saker --maxmemory 1gb                  options
#     saker /conf/saker.conf --maxmemory 1gb a configuration file and options
#     saker saker-server ...                 the same, with the program's name
#     saker redis-cli, sh, ...               another program
#
# As in those images, the server listens on all addresses of the container and protected mode is off, because
# clients of a container are never on its loopback: who may reach the port is decided when it is published.
# Options and a configuration file that set `bind` or `protected-mode` win. A file that is named by an
# `include` is not looked into.
set -eu

case "${1:-}" in
saker-server) shift ;;
"" | -* | *.conf) ;;
*) exec "$@" ;;
esac

case "${1:-}" in
--healthcheck | --help | --version | -h | -v) exec saker-server "$@" ;;
esac

file=
case "${1:-}" in
"" | -*) ;;
*)
	file=$1
	shift
	;;
esac

# Whether the configuration file sets the option $1.
is_set() {
	[ -n "$file" ] && grep -Eiq "^[[:space:]]*$1[[:space:]]" "$file"
}

# Ahead of the user's options, which win over these.
is_set protected-mode || set -- --protected-mode no "$@"
is_set bind || set -- --bind '*' '-::*' "$@"

umask 0077
# Replaces the shell, so that signals reach the server.
exec saker-server ${file:+"$file"} "$@"
