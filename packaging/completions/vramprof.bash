# SPDX-License-Identifier: Apache-2.0
# Completion of vramprof for bash: vramprof itself lists the words. File names are the default.
_vramprof() {
  local IFS=$'\n' cur=${COMP_WORDS[COMP_CWORD]}
  COMPREPLY=($(compgen -W "$("${COMP_WORDS[0]}" __complete "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null | cut -f 1)" -- "$cur"))
}
complete -o bashdefault -o default -F _vramprof vramprof
