# OpenSSH's own tests, which Debian packages as openssh-tests, of the installed OpenSSH. They need
# root.
# shellcheck shell=bash

prepare() {
	[ -e /usr/lib/openssh/regress/test-exec.sh ] || { echo "suites: openssh-tests is not installed"; return 1; }
	[ "$(id -u)" = 0 ] || { echo "suites: OpenSSH's tests start servers, as root"; return 1; }
}

# Without the tests of ciphers and keys, which take hours and start nothing.
cases() {
	printf '%s\n' connect connect-privsep connect-uri proxy-connect sshfp-connect proto-version reexec reconfigure exit-status exit-status-signal \
		stderr-data stderr-after-eof broken-pipe yes-head login-timeout envpass transfer banner multiplex channel-timeout forwarding dynamic-forward \
		forward-control agent agent-getpeereid agent-ptrace agent-restrict agent-subprocess agent-timeout scp scp3 scp-uri sftp sftp-batch sftp-chroot \
		sftp-cmds sftp-glob sftp-perm keyscan keys-command principals-command knownhosts-command localcommand forcecommand hostbased allow-deny-users \
		authinfo cfgmatch cfgmatchlisten
}

# sshd expects a directory that its service makes.
one() {
	mkdir /run/sshd 2>/dev/null && trap 'rmdir /run/sshd' EXIT
	cp -a /usr/lib/openssh/regress t
	env SUDO=env TEST_SHELL=sh TEST_SSH_SSH=ssh TEST_SSH_SFTPSERVER=/usr/lib/openssh/sftp-server TEST_SSH_UNSAFE_PERMISSIONS=1 \
		timeout -k 5 200 "${RUN[@]}" sh "t/test-exec.sh" "$PWD/t" "$PWD/t/$1.sh"
}

said() { sed -E "s|$work|WORK|g; s/\b[0-9]+ seconds/N seconds/g; s/[pP]id [0-9]+/pid N/g"; }
