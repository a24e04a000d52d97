# zsh's own tests (Test/*.ztst), of the release of the installed zsh.
# shellcheck shell=bash

prepare() {
	command -v zsh >/dev/null || { echo "suites: zsh is not installed"; return 1; }
	fetch_source zsh
}

cases() { (cd "$source/Test" && ls -- *.ztst); }

one() {
	local zsh
	zsh=$(command -v zsh)
	# The tests write beside themselves. They find functions, the shell and its configuration
	# relative to their directory.
	mkdir Src && ln -s "$source/Functions" "$source/Completion" . && ln -s "$zsh" Src && cp -r "$source/Test" . || return
	printf '#define %s 1\n' PATH_DEV_FD HAVE_FIFOS HAVE_INITGROUPS HAVE_SETRESUID >config.h
	cd Test || return
	env TERM=dumb TMPPREFIX="$PWD/tmp" ZTST_exe="$zsh" ZTST_verbose=1 ZTST_continue=1 timeout -k 5 300 "${RUN[@]}" zsh +Z -f ./ztst.zsh "$1"
}

said() { sed -E 's/ztst\.[0-9]+/ztst.N/g; s/^((---|\+\+\+) .*\t).*/\1/'; }
