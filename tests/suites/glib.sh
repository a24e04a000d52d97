# GLib's own tests that spawn, fork or start a bus, as Debian installs them (libglib2.0-tests).
# g_spawn_async() forks unless it may use posix_spawn, and many tests call it beside threads.
# shellcheck shell=bash

prepare() {
	tests=/usr/libexec/installed-tests/glib
	[ -x $tests/spawn-test ] || { echo "suites: GLib's tests want Debian's libglib2.0-tests"; return 1; }
}

cases() {
	(cd $tests && sed -n 's,^Exec=.*/installed-tests/glib/\([a-z0-9-]*\)$,\1,p' /usr/share/installed-tests/glib/*.test | sort -u |
		while read -r name; do
			! grep -aqE 'g_spawn_|g_subprocess_|g_test_trap_|g_test_dbus_|session_bus_up|waitpid' -- "$name" || echo "$name"
		done | grep -vxE 'gvariant|gmenumodel|gdbus-export')
}

# The buses write to standard error, too, in any order.
one() {
	mkdir run && env G_TEST_SRCDIR=$tests G_TEST_BUILDDIR=$tests HOME="$PWD" XDG_RUNTIME_DIR="$PWD/run" TMPDIR="$PWD" \
		timeout -k 5 120 "${RUN[@]}" "$tests/$1" --tap --seed R02S0000000000000000000000000000000a 2>errors
	local status=$?
	grep -av dbus-daemon errors | sort
	return $status
}

# Debugging messages, times, process ids, names on a bus.
said() {
	sed -E '/^# [A-Za-z-]+-DEBUG: |^cleaning up pid|Received Finished signal/d; s/_[A-Z0-9]{6}$/_TEMP/; s/line [0-9]+: +[0-9]+/line/; s/[0-9]+\.[0-9]+( ?([mu]?s|sec|seconds)\b)?/N/g; s/:1\.[0-9]+/:1.N/g' |
		sed -E 's/(process:|[Pp][Ii][Dd][ =:]+|Child )[0-9]+/\1PID/g; s/[0-9]+ ([µm]s|usec|seconds)/N \1/g'
}
