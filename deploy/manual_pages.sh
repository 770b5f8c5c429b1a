#!/usr/bin/env bash
# manual_pages.sh PROGRAM VERSION FOLDER: writes manual pages of PROGRAM and of each of its commands, by Debian's help2man from what --help says.
# A page has no date: the same program has the same pages.
set -euo pipefail
program=$1 version=$2 folder=$3

# make_page [COMMAND...]: the page of PROGRAM COMMAND... and those of the commands below it.
make_page() {
  local help name command summary words="$*"
  help=$("$program" "$@" --help)
  name=$(basename "$program")${words:+-${words// /-}}
  summary=$(sed '/^Usage:/,$d' <<<"$help" | tr '\n' ' ' | sed -E 's/^NeuroShard [a-z ]*: //; s/\.? *$//; s/\. .*//; s/^./\l&/')
  local commands=($(sed -n '/^Subcommands:/,/^$/s/^  \([a-z][a-z-]*\).*/\1/p' <<<"$help"))
  {
    "${HELP2MAN:-help2man}" --no-info --name="$summary" --version-string="$version" "$(printf %q "$program") $words" |
      sed "1d; s/^\.TH .*/.TH ${name^^} 1 \"\" \"neuroshard $version\" NeuroShard\n.nh\n.ad l/; /^\.SH NAME/{n;s/.* \\\\-/${name//-/\\\\-} \\\\-/}
           s/^\\\\fB\\\\-h\\\\fR,\\\\-\\\\-help/\\\\fB\\\\-h\\\\fR, \\\\fB\\\\-\\\\-help\\\\fR/"
    for command in "${commands[@]}"; do
      [ "$command" != "${commands[0]}" ] || echo '.SH "SEE ALSO"'
      echo ".BR $name-$command (1)"
    done
  } | gzip -9n >"$folder/$name.1.gz"
  for command in "${commands[@]}"; do make_page "$@" "$command"; done
}

rm -rf "$folder" && mkdir -p "$folder"
make_page
