#!/bin/sh
# cmake/ccache.sh COMPILER...: through ccache where there is one by now. A build
# that began without it has it as soon as it is installed: its commands, and so
# what is built, stay as they are.
if command -v ccache >/dev/null; then
  exec ccache "$@"
fi
exec "$@"
