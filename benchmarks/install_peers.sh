#!/bin/sh
# Installs the allocators that slabq is measured against (Debian and its relatives).
set -eu
apt-get update -qq
apt-get install -y -qq libjemalloc2 libmimalloc2.0 libtcmalloc-minimal4
