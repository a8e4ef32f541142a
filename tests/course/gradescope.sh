#!/bin/sh
# gradescope.sh NN: packs the autograder of lesson NN for Gradescope (make gradescope-zip LESSON=NN), as
# build/grade/autograder-NN.zip: the files that git tracks, in their present state, in gradus/; setup.sh, which
# Gradescope calls once, when it makes the image; and run_autograder, which it calls for each submission.
lesson=$1
refuse() { echo "gradescope-zip: $*" >&2; exit 2; }

[ -n "$lesson" ] && ls lessons/"$lesson"_*/README.md >/dev/null 2>&1 ||
  refuse "there is no lesson '$lesson'; write make gradescope-zip LESSON=NN"
files=$(git -c core.quotepath=off ls-files 2>/dev/null)
[ -n "$files" ] || refuse "git tracks no files here; call it in a clone of gradus"
mkdir -p build/grade && work=$(mktemp -d build/grade/zip.XXXXXX) || refuse "build/grade cannot be written to"
trap 'rm -rf "$work"' EXIT
zip=$PWD/build/grade/autograder-$lesson.zip

mkdir "$work/gradus"
tar -cf - $files | tar -xf - -C "$work/gradus" || refuse "not all files could be copied"

# The beginning of both scripts. The image may run on a different processor than the one it was made on.
beginning() {
  cat <<S
#!/bin/sh
# Made by make gradescope-zip LESSON=$lesson. AUTOGRADER names another folder than Gradescope's, for a trial.
root=\${AUTOGRADER:-/autograder}
cd "\$root/source/gradus" || exit 1
grade="make -s grade LESSON=$lesson ARCH=-march=haswell"
S
}
{
  beginning
  cat <<'S'
# The student's code must not be able to read the solution.
chmod 700 "$root/source"
command -v make >/dev/null || { apt-get update && apt-get install -y make; } || exit 1
# Grades the solution: this builds everything, and fails if the grader does not work.
$grade SUBMISSION=. OUT=build/grade/trial.json
S
} >"$work/setup.sh"
{
  beginning
  cat <<'S'
mkdir -p "$root/results"
rm -f "$root/results/results.json"
$grade SUBMISSION="$root/submission" OUT="$root/results/grade.json"
[ -s "$root/results/results.json" ] ||
  echo '{"output": "The grader failed; this says nothing about your work. Please tell your teacher."}' \
    >"$root/results/results.json"
S
} >"$work/run_autograder"
chmod +x "$work/setup.sh" "$work/run_autograder"

rm -f "$zip"
(cd "$work" && zip -qr "$zip" setup.sh run_autograder gradus) || refuse "$zip could not be written"
echo "gradescope-zip: $zip: $(wc -c <"$zip") bytes"
