# pictures.sh, which scripts source: shown_on PAGE prints the pictures that a page shows from its own folder.
shown_on() { sed -n 's/.*](\([0-9a-z_]*\.\(svg\|png\)\)).*/\1/p' "$1"; }
