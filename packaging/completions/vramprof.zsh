#compdef vramprof
# SPDX-License-Identifier: Apache-2.0
# Completion of vramprof for zsh: vramprof itself lists the words. File names are the default.
_vramprof() {
  local -a lines
  lines=("${(@f)$("${words[1]}" __complete "${(@)words[2,CURRENT]}" 2>/dev/null)}")
  lines=("${(@)lines//:/\\:}")
  lines=("${(@)lines/$'\t'/:}")
  if [[ -n ${lines[1]} ]]; then
    _describe vramprof lines
  else
    compset -P '--[a-z.-]#='
    _files
  fi
}
_vramprof "$@"
