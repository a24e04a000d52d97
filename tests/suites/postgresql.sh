# PostgreSQL's own regression tests with the installed server. Its backends are forks that never
# execute a program.
# shellcheck shell=bash

prepare() {
	local version
	bin=$(ls -d /usr/lib/postgresql/*/bin 2>/dev/null | sort -V | tail -1) version=${bin%/bin}
	regress=${bin%/bin}/lib/pgxs/src/test/regress/pg_regress
	[ -x "$bin/postgres" ] && [ -x "$regress" ] || { echo "suites: no server of Debian's PostgreSQL is installed"; return 1; }
	[ "$(id -u)" = 0 ] || { echo "suites: PostgreSQL's tests are run by the user postgres, as whom only root can run them"; return 1; }
	fetch_source "postgresql-${version##*/}" || return 1
	runuser -u postgres -- test -r "$source/configure" ||
		{ echo "suites: postgres cannot read $source: name another folder in FORKLESS_SUITES"; return 1; }
	# The tests call functions in C. Building them needs the headers of this version, which
	# configure makes.
	[ -e "$source/src/test/regress/regress.so" ] || (cd "$source" && ./configure --without-readline --without-zlib --without-icu >configured 2>&1 &&
		make -s -C src/backend generated-headers >made 2>&1 &&
		cc -O2 -fPIC -fno-strict-aliasing -fwrapv -shared -D_GNU_SOURCE -Isrc/include -o src/test/regress/regress.so src/test/regress/regress.c >>made 2>&1) ||
		{ echo "suites: the functions that PostgreSQL's tests call cannot be built: see $source/configured and $source/made"; return 1; }
	# The test of triggers looks for these beside the functions in C.
	ln -sf "${bin%/bin}"/lib/{autoinc,refint}.so "$source/src/test/regress/"
}

# A test needs the tables of earlier tests. So all tests are one case, with a line for each.
cases() { echo parallel_schedule; }

one() {
	chmod 755 "$work" && chown postgres . && mkdir sockets && chown postgres sockets
	env PG_REGRESS_SOCK_DIR="$PWD/sockets" timeout -k 5 900 "${RUN[@]}" runuser -u postgres -- "$regress" --temp-instance="$PWD/data" --bindir="$bin" \
		--inputdir="$source/src/test/regress" --dlpath="$source/src/test/regress" --outputdir="$PWD" --max-connections=10 \
		--schedule="$source/src/test/regress/$1"
	local status=$?
	cat regression.diffs 2>/dev/null
	return $status
}

# The order in which parallel tests end differs.
said() {
	sed -E -e 's/^(parallel group \([^)]*\)):.*/\1/; s/ +[0-9]+ ms$//; s/[pP][iI][dD] [0-9]+/PID N/; s/port [0-9]+/port N/; s/^(---|\+\+\+) .*//' \
		-e "s|$work|WORK|g"
}
