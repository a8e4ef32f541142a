# course_check.sh: checks of check.sh about the course.

# Each check of a lesson's program fails alone in a test of the lesson.
planted_wrongs() { awk -f "$tools/planted.awk" $(cxx lessons src tests/lessons) </dev/null; }
count_checks() { awk -v count=1 -f "$tools/planted.awk" $(cxx lessons src) </dev/null; }

# Each lesson has notes for teachers with all their parts. The trees of students have none.
teachers_notes() {
  [ -d tests/course/teacher ] || return
  for page in lessons/[0-9][0-9]_*/README.md; do
    nn=$(basename "$(dirname "$page")" | cut -c1-2)
    notes=tests/course/teacher/$nn.md
    [ -f "$notes" ] || { echo "$notes is missing; each lesson has notes for teachers"; continue; }
    awk -v nn="$nn" -f "$tools/teacher.awk" "$page" "$notes"
  done
}

# The teachers' page agrees with the times, points and prerequisites of the lessons' pages. It is not handed out.
syllabus() {
  page=tests/course/teacher/README.md
  [ -f $page ] || return
  { awk -f "$tools/syllabus.awk" lessons/README.md lessons/[0-9][0-9]_*/README.md $page >"$found.md"; } 2>&1
  cmp -s "$found.md" $page || echo "$page: does not agree with the lessons' pages; run make syllabus"
}
