# tree.sh: for tools that build a tree of their own beside this one (. tree.sh; they have a folder $work), or that
# put in mutants.
unset MAKEFLAGS MAKELEVEL MFLAGS  # make builds with all cores there too

# same_tree FROM TO: the files of FROM, without what git and make keep, are those of TO. Only files that differ
# change; a new tree begins with the objects of this one. So make compiles only what differs.
same_tree() {
  if [ ! -d "$2" ]; then
    mkdir -p "$2/build"
    for part in obj flags; do [ ! -e build/$part ] || cp -a build/$part "$2/build"; done
  fi
  (cd "$1" && find . \( -path ./.git -o -path ./build \) -prune -o -type f -print) | sort >"$work/now"
  (cd "$2" && find . -path ./build -prune -o -type f -print) | sort >"$work/before"
  comm -13 "$work/now" "$work/before" | while read -r file; do rm "$2/$file"; done
  while read -r file; do
    # What is new, or comes back, keeps its time: its object file may be there.
    if [ ! -e "$2/$file" ]; then mkdir -p "$2/${file%/*}" && cp -p "$1/$file" "$2/$file"
    else cmp -s "$1/$file" "$2/$file" || cp "$1/$file" "$2/$file"; fi
  done <"$work/now"
}

# The names of the mutants of lesson NN: NN.k_what changes a line of exercise NN.k; NN_what other code that it reads.
mutants_of() { sed -n 's/^\([0-9][0-9][._][^: ]*\): .*/\1/p' tests/mutants/"$1".txt 2>/dev/null; }
