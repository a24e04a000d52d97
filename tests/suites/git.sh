# git's own tests that start processes (t/t*.sh), of the release of the installed git. The program
# under test is the shell that runs a test. Every git, hook, filter, editor, pager and transport of
# the test is a descendant of it.
# shellcheck shell=bash

prepare() {
	[ -x "$(git --exec-path)/git-send-email" ] && [ -x "$(git --exec-path)/git-svn" ] && perl -MDBD::SQLite -e1 ||
		{ echo "suites: git's tests want Debian's git-email, git-svn and libdbd-sqlite3-perl"; return 1; }
	fetch_source git || return 1
	# The tests' own helper, and the options that git's programs were built with.
	[ -e "$source/templates/blt" ] || (cd "$source" && make -s -j2 CFLAGS=-O1 NO_GETTEXT=1 NO_TCLTK=1 NO_CURL=1 t/helper/test-{tool,fake-ssh} GIT-BUILD-OPTIONS >made 2>&1 &&
		sed -i "s/^NO_CURL=.*/NO_CURL=''/" GIT-BUILD-OPTIONS && make -s -C templates >>made 2>&1) ||
		{ echo "suites: git's test-tool cannot be built: see $source/made"; return 1; }
}

# The tests about processes, as many as take half an hour together. Signals, filters, run-command,
# credential helpers, hooks. Rebase with its editor and exec, external diffs, archives' compressors.
# Pushes and fetches by hooks, pipe, HTTP, git:// and remote helpers. Bisect run, filter-branch,
# pagers, commit hooks and signatures, file system monitors. Merge tools, maintenance, mail,
# Subversion, fast-import, CVS, Perl.
cases() {
	(cd "$source/t" && ls t0005-* t0021-* t0061-* t0068-* t021[0-2]-* t030[0-3]-* t1350-* t1800-* t3050-* t340[69]-* t341[38]-* t3428-* t3430-* \
		t3701-* t3904-* t40[23]0-* t500[04]-* t5400-* t540[1-7]-* t5409-* t541[01]-* t5507-* t5509-* t552[01]-* t553[0-47]-* t554[0135]-* t5550-* \
		t556[0-2]-* t5570-* t5571-* t5601-* t570[0-2]-* t580[12]-* t581[3-5]-* t6030-* t6500-* t7003-* t7006-* t750[0-57]-* t7510-* t7519-* \
		t7527-* t7610-* t7800-* t7900-* t9001-* t9117-* t9300-* t9400-* t9700-* t9901-* | grep '\.sh$')
}

# The tests turn on checks of malloc, which would replace LD_PRELOAD.
one() {
	local here=$PWD
	cd "$source/t" || return
	env TEST_NO_MALLOC_CHECK=1 GIT_TEST_INSTALLED=/usr/bin TEST_OUTPUT_DIRECTORY="$here" timeout -k 5 300 "${RUN[@]}" /bin/sh "./$1" "--root=$here"
}
