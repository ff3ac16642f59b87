#!/bin/sh
# cmake/ccache.sh COMPILER...: runs the compiler, through ccache if it is installed.
# A build that was configured without ccache uses it as soon as it is installed: the
# build's commands do not change, so nothing is rebuilt.
if command -v ccache >/dev/null; then
  exec ccache "$@"
fi
exec "$@"
