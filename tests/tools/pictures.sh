# pictures.sh: for scripts (. pictures.sh): the pictures that a page shows from its own folder.
shown_on() { sed -n 's/.*](\([0-9a-z_]*\.\(svg\|png\)\)).*/\1/p' "$1"; }
