#!/bin/sh
# Starts saker-server in a container, with arguments as the images of Redis and Valkey take them:
#
#     saker                                  all defaults
#     saker --maxmemory 1gb                  options
#     saker /conf/saker.conf --maxmemory 1gb a configuration file and options
#     saker saker-server ...                 the same, with the program's name
#     saker sh                               another program
#     saker - --maxmemory 1gb                options from standard input (first or last a dash) and others
#
# As in those images, the server listens on all addresses of the container and protected mode is off, because
# clients of a container are never on its loopback: who may reach the port is decided when it is published.
# Options, standard input and a configuration file that set `bind` or `protected-mode` win. A file that is named
# by an `include` is not looked into.
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

# Whether the configuration file sets the option $1. The server says what is wrong with the file.
is_set() {
	[ -n "$file" ] && grep -Eiqs "^[[:space:]]*$1[[:space:]]" "$file"
}

bind='* -::*'
protected_mode=no
! is_set bind || bind=
! is_set protected-mode || protected_mode=

umask 0077
last=
for last; do :; done
# The last line replaces the shell, so that signals reach the server.
if [ "${1:-}" = - ] || [ "$last" = - ]; then
	# Options win over standard input: the defaults go ahead of what stands there.
	input="${bind:+bind $bind}
${protected_mode:+protected-mode $protected_mode}
$(cat)"
	exec saker-server ${file:+"$file"} "$@" <<-EOF
		$input
	EOF
fi
# Ahead of the user's options, which win over these.
set -- ${protected_mode:+--protected-mode "$protected_mode"} "$@"
set -- ${bind:+--bind "$bind"} "$@"
exec saker-server ${file:+"$file"} "$@"
