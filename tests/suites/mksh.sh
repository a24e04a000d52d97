# mksh's own tests (check.t), of the release of the installed mksh. A case is the tests whose names
# begin with the same word.
# shellcheck shell=bash

prepare() {
	command -v mksh >/dev/null || { echo "suites: mksh is not installed"; return 1; }
	fetch_source mksh
}

named() { sed -n 's/^name:[[:space:]]*//p' "$source/check.t"; }
cases() { named | sed 's/-.*//' | sort -u; }

one() {
	local names
	mapfile -t names < <(named | grep -xE -- "$1(-.*)?")
	# check.pl runs programs with the variables that it names, and no others.
	sed "s/'PATH', 'PERLIO'/'LD_PRELOAD', 'FORKLESS_RUN', &/" "$source/check.pl" >check.pl
	env TERM=dumb timeout -k 5 300 "${RUN[@]}" perl check.pl -v -T "$PWD" -C regress:no-ctty,shell:legacy-no,shell:textmode-no -s "$source/check.t" -p "$(command -v mksh)" "${names[@]}"
}
