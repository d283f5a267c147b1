# Entry points for developers; `just --list` prints them. Install just with `cargo install just` or `pip install rust-just`.

# Installs the build requirements: Debian packages, libtorch
setup:
    scripts/setup.sh

# Builds and runs the tests; arguments are passed to `cargo test`
test *arguments:
    scripts/test.sh {{arguments}}

# Checks formatting, spelling, Rust, Python, shell scripts and kernels
lint:
    scripts/dev/lint.sh

# Runs everything that a merge requires: set-up, lints, all tests
ci:
    .ci/run

# Runs the micro-benchmarks; needs an idle machine
bench *arguments:
    cargo bench {{arguments}}

# Builds the documentation site in target/book
docs:
    mdbook build

# Checks dependencies: licenses, vulnerabilities, duplicates and sources
dependencies:
    cargo deny --workspace check

# Builds the Debian package and the archive; needs root
release:
    scripts/dev/package.sh

# Runs all checks on a machine with a GPU
gpu *arguments:
    scripts/dev/test_gpu.sh {{arguments}}
