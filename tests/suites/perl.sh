# Perl's own tests that make processes, run by the installed perl.
# shellcheck shell=bash

prepare() {
	fetch_source perl || return 1
	local dir
	grep -qF '"version" : "'"$(perl -e 'print "$]"')"'"' "$source/META.json" || { echo "suites: $source is not of the perl that is installed"; return 1; }
	# The tests look for modules in lib only, the place of built modules. The installed modules
	# take their place.
	[ -e "$source/lib/Config.pm" ] || for dir in $(perl -MConfig -e 'print "@Config{qw(archlib privlib)}"'); do
		cp -rsn "$(realpath "$dir")/." "$source/lib/"
	done
	ln -sf "$(command -v perl)" "$source/t/perl"
}

# Without the tests of the source tree itself, of other systems, and of memory by the gigabyte.
# Without tests that print which of several processes was first.
cases() {
	(cd "$source" && find t lib dist ext cpan -name '*.t' ! -path 't/porting/*' ! -path 't/win32/*' ! -path 't/bigmem/*' ! -name 'uniprops*' ! -path '*/XS-*' ! -path '*Win32*' ! -path '*VMS*' ! -name multiplexer.t ! -path '*/libnet/t/*_ssl.t' ! -path '*/libnet/t/*_ipv6.t' -print0 |
		xargs -0 grep -lE "\b(fork|fresh_perl\w*|runperl|run_multiple_progs|popen|qx|watchdog|waitpid)\b|\b(system|exec)\b *[({\"'\$]|\`[^\`']*\`|\bopen[23]?\b.*[|]|IPC::" | sort -r)
}

one() {
	local dir=t file=$1 words=() temporary=$PWD/temporary taint
	case $1 in
	t/*) file=${1#t/} ;;
	lib/*) file=../$1 ;;
	*) dir=${1%%/t/*} file=${1#"$dir"/} && words=(-I../../lib -I../../t) ;;
	esac
	# The tests write beside themselves, into files of their own.
	mkdir -p "$dir" "$temporary" && cp -rl "$source/$dir/." "$dir" || return
	ln -s "$source"/* . 2>/dev/null
	# With perl.h, MakeMaker would take this directory for a perl that is built.
	[ ! -L perl.h ] || rm perl.h
	cd "$dir" || return
	taint=$(sed -nE '1s/^#!.*perl.* -[a-zA-Z]*([tT]).*/-\1/p' "$file")
	case $dir in
	# These tests find their files only in the layout in which they are released on their own.
	cpan/ExtUtils-Constant | cpan/IO-Compress | cpan/Pod-Simple | cpan/Test-Simple) words=() ;;
	*) export PERL_CORE=1 ;;
	esac
	env TMPDIR="$temporary" PERL_HASH_SEED=0 TERM=dumb LC_ALL=C timeout -k 5 300 "${RUN[@]}" perl ${taint:+"$taint"} "${words[@]}" "$file"
}

# Process numbers and times anywhere, but not the numbers of tests. Names of temporary files.
# Addresses.
said() { sed -E '/^ *(not )?ok [0-9]+ *$/b; s/0x[0-9a-f]+|\b[0-9a-f]{8,}\b/N/g; s/[0-9]+\.[0-9]{2,}|[0-9]+(:[0-9]{2})+| *[0-9]{3,}/N/g; s/tmp_[A-Z]+_/tmp_N_/g; s/tmpN[A-Z]+/tmpN/g; s#(/temporary/)\w{10}#\1N#g'; }
