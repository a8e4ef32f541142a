# hints.awk: the hints of one exercise, a line each (-v id=NN.k -f hints.awk hints.md). They are numbered 1. 2. 3. in
# the paragraph that begins with **NN.k**.
index($0, "**") == 1 { mine = index($0, "**" id "**") == 1 }
mine { text = text " " $0 }
END {
  for (k = 1; k <= 3; k++) {
    if (!(at = index(text, " " k ". "))) exit
    rest = substr(text, at + 4)
    end = index(rest, " " k + 1 ". ")
    print end && k < 3 ? substr(rest, 1, end - 1) : rest
    text = substr(rest, end)
  }
}
