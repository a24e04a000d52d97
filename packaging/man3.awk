# Manual pages of section 3 from the comments of the C headers: one page for each function, and forkless(3) from the
# first comment of forkless.h. Variables: version, date, directory.
#
# A comment belongs to the declaration that follows it without a blank line (crates/forkless-capi/tests/headers.rs
# checks that each function has one).

# Plain text for roff: a backslash, a first dot or quote, and hyphens that are to be copied.
function plain(text) {
	gsub(/\\/, "\\e", text)
	gsub(/-/, "\\-", text)
	if (text ~ /^[.']/)
		text = "\\&" text
	return text
}

function bold(text) {
	while (match(text, /`[^`]*`/))
		text = substr(text, 1, RSTART - 1) "\\fB" substr(text, RSTART + 1, RLENGTH - 2) "\\fR" substr(text, RSTART + RLENGTH)
	return text
}

# Lines of a comment: an empty one begins a paragraph, indented ones stay as they are.
function body(lines, count, file,    i, line, fixed) {
	fixed = 0
	for (i = 1; i <= count; i++) {
		line = lines[i]
		if (line ~ /^  / && !fixed) {
			print ".PP\n.nf" > file
			fixed = 1
		} else if (line !~ /^  / && line != "" && fixed) {
			print ".fi" > file
			fixed = 0
		}
		if (line ~ /^[A-Z]+$/)
			print ".SH " line > file
		else if (line == "" && !fixed)
			print ".PP" > file
		else
			print bold(plain(line)) > file
	}
	if (fixed)
		print ".fi" > file
}

function head(name, summary, file) {
	printf ".TH %s 3 \"%s\" \"forkless %s\" \"Forkless\"\n.SH NAME\n%s \\- %s\n", name, date, version, name, bold(plain(summary)) > file
}

# The first sentence, as a summary: in one line, without its full stop.
function first_sentence(lines, count,    i, text) {
	text = ""
	for (i = 1; i <= count && lines[i] != ""; i++)
		text = text (text == "" ? "" : " ") lines[i]
	if (match(text, /[.;:]( |$)/))
		text = substr(text, 1, RSTART - 1)
	return text
}

function function_page(    name, file) {
	name = declaration
	sub(/\(.*/, "", name)
	sub(/.*[ *]/, "", name)
	file = directory "/" name ".3"
	head(name, first_sentence(comment, comments), file)
	printf ".SH SYNOPSIS\n.nf\n.B #include <%s>\n.PP\n", header > file
	gsub(/\n +/, "\n    ", declaration)
	print "\\fB" plain(declaration) "\\fR\n.fi\n.SH DESCRIPTION" > file
	body(comment, comments, file)
	print ".SH SEE ALSO\n.BR forkless (3)" > file
	close(file)
}

FNR == 1 {
	header = FILENAME
	sub(/.*\//, "", header)
	in_comment = 0
	comments = 0
	declaration = ""
	first = 1
}

/^\/\*/ {
	in_comment = 1
	comments = 0
	sub(/^\/\* ?/, "")
}

in_comment {
	ends = sub(/ *\*\/.*$/, "")
	sub(/^ \* ?/, "")
	if (!(comments == 0 && $0 == "") && !(ends && $0 == ""))
		comment[++comments] = $0
	if (ends) {
		in_comment = 0
		if (first && header == "forkless.h") {
			# Its first line is "forkless.h - summary.".
			file = directory "/forkless.3"
			sub(/^[^-]* - /, "", comment[1])
			sub(/\.$/, "", comment[1])
			head("forkless", comment[1], file)
			print ".SH SYNOPSIS\n.nf\n.B #include <forkless.h>\n.fi\n.SH DESCRIPTION" > file
			comment[1] = ""
			body(comment, comments, file)
		}
		first = 0
	}
	next
}

/^$/ {
	comments = 0
	next
}

# A declaration of a function begins in the first column and ends with a semicolon.
declaration != "" || /^[A-Za-z].*\(/ {
	if ($0 ~ /^extern "C"/ || $0 ~ /^typedef/)
		next
	declaration = declaration (declaration == "" ? "" : "\n") $0
	if ($0 ~ /;$/) {
		if (comments)
			function_page()
		name = declaration
		sub(/\(.*/, "", name)
		sub(/.*[ *]/, "", name)
		names[++count] = name
		declaration = ""
	}
}

END {
	file = directory "/forkless.3"
	print ".SH SEE ALSO" > file
	for (i = 1; i <= count; i++)
		printf ".BR %s (3)%s\n", names[i], i < count ? "," : "" > file
}
