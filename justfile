# Entry points for developers; `just --list` prints them. `just`: cargo install just, or pip install rust-just.

# Installs what the build needs: Debian packages, libtorch
setup:
    scripts/setup.sh

# Builds and runs tests; arguments go to `cargo test`
test *arguments:
    scripts/test.sh {{arguments}}

# Checks formatting, spelling, Rust, Python, shell scripts, kernels
lint:
    scripts/dev/lint.sh

# What a merge needs: setup, lints, all tests
ci:
    .ci/run

# Micro-benchmarks; on a quiet machine
bench *arguments:
    cargo bench {{arguments}}

# The documents as a site in target/book
docs:
    mdbook build

# Licenses, vulnerabilities, duplicates and sources of dependencies
dependencies:
    cargo deny check

# Debian package and archive, as root
release:
    scripts/dev/package.sh

# All checks on a machine with a GPU
gpu *arguments:
    scripts/dev/test_gpu.sh {{arguments}}
