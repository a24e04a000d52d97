# The git victim: sh git.sh DIRECTORY. Makes a repository, commits, branches, merges, looks, and removes it.
set -e
export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_NOSYSTEM=1
export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@example.org GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@example.org
rm -rf "$1"
git init -q -b main "$1"
cd "$1"
git config gc.auto 0
for n in 1 2 3 4 5 6 7 8 9 10; do
	echo "$n" > "file$n"
	git add "file$n"
	git commit -q -m "$n"
	git status --short
done
git checkout -q -b side HEAD~3
echo side > side
git add side
git commit -q -m side
git checkout -q main
git merge -q --no-edit side
git log --oneline
git diff HEAD~5
git rev-parse HEAD
cd /
rm -rf "$1"
