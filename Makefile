# Two commands matter to someone new: `make demo` and `make test`. `make help` lists the rest.

CARGO  ?= cargo
CARGO_HOME ?= $(HOME)/.cargo
PREFIX ?= /usr/local

# Where cargo builds, and what the laboratory's guests are made of.
TARGET := $(or $(CARGO_TARGET_DIR),target)
PARDA  := $(TARGET)/release/parda
PARDA_LAB = $(PARDA)-lab

# Where the random clusters of the simulator's tests begin that each commit has of its own.
hash := $(shell git rev-parse HEAD 2>/dev/null | cut -c 1-8)
export PARDA_COMMIT_SEED ?= $(shell printf %d 0x$(or $(hash),1))

# Without optimisation: it shows what parda does, not how fast.
DEMO := $(CARGO) build --locked --package parda --package parda-lab-cli && $(TARGET)/debug/parda-lab
DEMO_DEPS := fio=fio
TEST_DEPS := $(DEMO_DEPS) qemu-img=qemu-utils nbdinfo=libnbd-bin nbdsh=python3-libnbd nbdcopy=libnbd-bin nbdkit=nbdkit \
	qemu-system-x86_64=qemu-system-x86 qemu-storage-daemon=qemu-system-common busybox=busybox-static mke2fs=e2fsprogs nbdfuse=libnbd-bin \
	tgtd=tgt ip=iproute2 clang=clang llvm-strip=llvm wipefs=util-linux losetup=mount systemd-nspawn=systemd-container umoci=umoci chromium=chromium promtool=prometheus \
	node=nodejs npm=npm etcd=etcd-server faketime=faketime virsh=libvirt-clients

# Always of the whole workspace: some packages alone would have other features, and all of it be built again.
TESTS := --workspace --locked --no-fail-fast

# Tests that keep real time for minutes. Stories wait more than they compute: four at a time.
REAL := stories guests lab

# Stories and guests that compare rates or latencies in real time, and want the processors for themselves.
RATES := qemus_of_two_hosts a_host_short_of_cpu
GUESTS_RATES := cgroups::

# Tests that simulate for minutes.
SIMULATED := corpus random papers accuracy manual

# Test programs run without cargo, whose lock lint and doctests hold while they build. `make test` has built them all before (BUILT=1).
RUN := tools/programs.py run $(if $(BUILT),--built)

.PHONY: help hooks build web bpf guest kit demo demo-live demo-postgres test check lint unit computing waiting real stories guests laboratory simulated doctests kubernetes fuzz nightly reproduce docs bench install install-program install-lab install-lab-program install-files install-lab-files uninstall deb rpm sbom image clean

help: ## This list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 16

# Not where it is built, and by whom: a commit is the same program everywhere (tools/reproducible.sh).
places := $(CURDIR)=/usr/src/parda $(or $(realpath $(CARGO_HOME)),$(CARGO_HOME))=/usr/src/cargo \
	$(if $(CARGO_TARGET_DIR),$(abspath $(CARGO_TARGET_DIR))=/usr/src/parda/target)
build: export RUSTFLAGS := $(RUSTFLAGS) $(addprefix --remap-path-prefix=,$(places))
build: export CFLAGS := $(CFLAGS) $(addprefix -ffile-prefix-map=,$(places))
build: ## The binaries, target/release/parda and target/release/parda-lab
	$(CARGO) build --release --locked --package parda --package parda-lab-cli --features parda/kubernetes

web: ## The page of the dashboard, crates/http/page, from web/ (needs Node.js 20.19 or newer)
	@tools/web.sh build

guest: ## What the laboratory's guests are made of: a kernel and tools, from Debian packages
	@tools/deps.sh $(TEST_DEPS)
	@tools/guest.sh $(TARGET)/guest

demo: ## Shows it: no control, then control, side by side
	@tools/deps.sh $(DEMO_DEPS)
	@$(DEMO) lab scenarios/demo.toml
	@echo; echo 'Live in a browser, with a dashboard for each host: make demo-live'

demo-postgres: ## PostgreSQL beside a noisy neighbour: alone, without control, with it (as root; five minutes)
	@tools/deps.sh $(DEMO_DEPS) pgbench=postgresql nbdfuse=libnbd-bin nbdinfo=libnbd-bin mke2fs=e2fsprogs
	@$(MAKE) --no-print-directory build
	@mkdir -p $(TARGET)/postgres
	@tools/demo-postgres.sh $(PARDA) $(TARGET)/postgres/tps.tsv
	@$(CARGO) run --release --locked --quiet --package parda-plot --example lines -- $(TARGET)/postgres/tps.tsv $(TARGET)/postgres/tps.svg \
		'PostgreSQL beside a noisy neighbour' 'pgbench, three clients' TPS
	@echo; echo 'Each second, as a chart: $(TARGET)/postgres/tps.svg'

demo-live: ## The same with a web dashboard for each host, until Ctrl-C
	@tools/deps.sh $(DEMO_DEPS)
	@$(DEMO) lab scenarios/demo.toml --live

# All is built first. Stories wait more than they compute, and so does the laboratory: unit tests and guests run beside the former, and what only computes
# beside all of them, at low priority. The laboratory compares real time with the simulator's, so no other test is beside it; nor is one beside the
# others that compare rates.
test: ## What CI runs: lint, all tests but those that repeat what a faster one proves (make nightly), fuzzing for seconds
	@tools/deps.sh $(TEST_DEPS)
	@$(MAKE) --no-print-directory kit
	tools/programs.py build
	@tools/beside.sh "nice -n 19 $(MAKE) --no-print-directory computing BUILT=1" "$(MAKE) --no-print-directory waiting BUILT=1"

# Each of them has times in which it uses one processor only.
computing:
	@$(MAKE) --no-print-directory -j4 --output-sync=target lint fuzz simulated doctests

waiting:
	@tools/beside.sh "$(MAKE) --no-print-directory unit guests -k" "$(MAKE) --no-print-directory stories"; beside=$$?; \
	$(MAKE) --no-print-directory laboratory && [ $$beside -eq 0 ]

check: ## Format, circles, prose; clippy, and the tests of the crates that changed since origin/main
	@tools/check.sh

hooks: ## A hook of git that checks what changed before each commit
	git config core.hooksPath tools/hooks

lint: ## Format, clippy, documentation, licences, circles of files, prose, and that the core is free of the standard library
	$(CARGO) fmt --all --check
	$(CARGO) clippy --quiet --workspace --all-targets --locked -- -D warnings
	$(CARGO) clippy --quiet --workspace $(addprefix --test ,$(REAL) $(SIMULATED)) --locked -- -D warnings
	$(CARGO) check --quiet --package parda --features kubernetes --bins --locked
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --no-deps --locked --quiet
	$(CARGO) build --quiet --manifest-path tools/bare/Cargo.toml --target-dir target/bare
	tools/deny.sh
	tools/circles.py
	tools/prose.py
	tools/names.py
	tools/web.sh check

unit: ## Unit, property, cluster and conformance tests
	@tools/deps.sh $(TEST_DEPS)
	$(RUN)

real: stories guests laboratory ## Stories with real clients, guests, scenarios in real time

stories:
	@tools/deps.sh $(TEST_DEPS)
	@tools/web.sh tests
	$(RUN) stories -- --test-threads=4 $(RATES:%=--skip %)

guests: kit
	@tools/deps.sh $(TEST_DEPS)
	$(RUN) guests -- --skip $(GUESTS_RATES)

laboratory: kit
	@tools/deps.sh $(TEST_DEPS)
	$(RUN) lab
	$(RUN) stories -- $(RATES)
	$(RUN) guests -- $(GUESTS_RATES)

# Guests are for x86_64 only.
kit:
	@if [ "$$(uname -m)" = x86_64 ]; then tools/guest.sh $(TARGET)/guest; fi

doctests: ## The examples in the documentation of the crates
	$(CARGO) test $(TESTS) --doc

# Features of libraries that it turns on make clippy count more in functions that log.
kubernetes: ## `parda kubernetes`: clippy, unit tests, and stories with a stand-in for the API server
	$(CARGO) clippy --quiet --package parda-kubernetes --features api --all-targets --locked --no-deps -- -D warnings
	$(CARGO) clippy --quiet --package parda --features kubernetes --bins --locked --no-deps -- -D warnings -A clippy::cognitive_complexity
	$(CARGO) test --locked --package parda-kubernetes --features api
	$(CARGO) test --locked --package parda --features kubernetes --bins --test stories -- kubernetes

simulated: ## Studies of the law, random clusters, the papers' figures, the probe against the model
	@echo "this commit's random clusters begin at PARDA_COMMIT_SEED=$(PARDA_COMMIT_SEED)"
	$(RUN) $(SIMULATED)

fuzz: ## Every parser, a short while each
	tools/fuzz.sh 3

nightly: ## What takes hours: all guests and scenarios in real time, 500 kills a story, half an hour of soak, 10^8 fuzzing runs, Miri, mutations
	@tools/deps.sh $(TEST_DEPS) mkfs.xfs=xfsprogs mkfs.btrfs=btrfs-progs cryptsetup=cryptsetup-bin fdisk=fdisk
	@tools/deps.sh libvirtd=libvirt-daemon-system
	@$(MAKE) --no-print-directory build
	tools/programs.py build
	PARDA=$(PARDA) tools/manifests.sh
	@$(MAKE) --no-print-directory demo-postgres
	@$(MAKE) --no-print-directory kubernetes
	tools/kube-apiserver.sh $(CARGO) test --locked --package parda --features kubernetes --test stories -- kubernetes --ignored
	$(CARGO) test $(TESTS) --test stories -- libvirt alerts:: --ignored
	PARDA_LONG=1 PARDA_ABORTS=10000 $(CARGO) test $(TESTS) --test block --test exchange -- lost_writes silent_server tls foreign
	PARDA_LONG=1 $(CARGO) test $(TESTS) --test stories -- told_to_end throttles
	PARDA_DISKS=10000 $(CARGO) test $(TESTS) --test stories -- many::thousands --nocapture
	@$(MAKE) --no-print-directory kit
	PARDA_LONG=1 $(CARGO) test $(TESTS) --test guests -- --include-ignored --skip two_vms_of_a_virtio_disk
	$(CARGO) test $(TESTS) --test lab -- --include-ignored
	tools/reproducible.sh
	tools/upgrade.sh
	PARDA_STOPS=200 PARDA_STOP_MOST=120 $(CARGO) test $(TESTS) --test stories -- frozen --nocapture
	PARDA_CRASH_ROUNDS=500 PARDA_SOAK_SECONDS=1800 $(CARGO) test $(TESTS) --test stories -- durability soak --nocapture
	PARDA_CONFIG_RUNS=10000000 $(CARGO) test $(TESTS) --test agent -- mutated
	PARDA_FLEETS=2000 $(CARGO) test --release --locked --workspace --test random -- thousands_of_fleets --ignored --nocapture
	PARDA_LIES=140 $(CARGO) test --release --locked --workspace --test random -- a_liar --nocapture
	PARDA_GUARANTEED=1000 $(CARGO) test --release --locked --workspace --test random -- a_thousand_fleets --ignored --nocapture
	PARDA_EXPLAINED=200 $(CARGO) test --release --locked --workspace --test random -- predictions_of_many --ignored --nocapture
	$(CARGO) test --release --locked --workspace --test corpus -- ablation --ignored
	tools/schemathesis.sh --max-examples 1000
	tools/fuzz.sh --runs 100000000
	tools/miri.sh
	tools/mutations.sh

reproduce: ## The papers' figures beside ours; renews docs/reproduction.md, docs/elling.md and the pictures of docs/probe.md
	@PARDA_RENEW=1 $(CARGO) test --release --locked --quiet --package parda-report --test papers --package parda-sim --test manual

docs: ## The documentation as a site, target/book/html (mdBook)
	@tools/docs.sh

bench: bench-nbd ## Measures against other NBD servers and the simulator, two hours; docs/performance.md has a run
	@tools/deps.sh valgrind=valgrind
	$(CARGO) build --release --locked --quiet --package parda-sim --example speed
	$(TARGET)/release/examples/speed
	benches/instructions.sh

# BENCH="--quick" for four minutes, BENCH="--only 'direct/unix'" for a part; benches/nbd/main.rs says what else.
bench-nbd: build ## Measures against qemu-nbd, nbdkit, qemu-storage-daemon and a bare ring
	@tools/deps.sh $(TEST_DEPS) qemu-storage-daemon=qemu-system-common
	$(CARGO) build --release --locked --quiet --package parda-bench --examples
	$(TARGET)/release/examples/matrix run --parda $(PARDA) $(BENCH)

bpf: ## The eBPF object of crates/steer, after a change of its source (clang, llvm-strip)
	tools/bpf.sh

LIB = $(DESTDIR)$(PREFIX)/lib
SHARE = $(DESTDIR)$(PREFIX)/share
BASH_COMPLETIONS = $(SHARE)/bash-completion/completions
ZSH_COMPLETIONS = $(SHARE)/zsh/site-functions
FISH_COMPLETIONS = $(SHARE)/fish/vendor_completions.d
SYSTEMD = $(LIB)/systemd/system/parda.service $(LIB)/sysusers.d/parda.conf $(LIB)/tmpfiles.d/parda.conf

# Not built here: root need not have cargo.
install: install-program install-files install-lab ## Installs what `make build` built under PREFIX: binaries, symbols, pages, completions, unit and user
	@if [ -z "$(DESTDIR)" ] && [ -d /run/systemd/system ]; then \
	  systemd-sysusers $(LIB)/sysusers.d/parda.conf && systemd-tmpfiles --create $(LIB)/tmpfiles.d/parda.conf && systemctl daemon-reload; fi

install-program: program = $(PARDA)
install-lab-program: program = $(PARDA_LAB)
install-program install-lab-program:
	@test -x $(program) || { echo "install: there is no $(program): run \`make build\` first, as yourself" >&2; exit 1; }
	install -D -m 755 $(program) $(DESTDIR)$(PREFIX)/bin/$(notdir $(program))
	install -d $(LIB)/debug$(PREFIX)/bin
	objcopy --only-keep-debug $(program) $(LIB)/debug$(PREFIX)/bin/$(notdir $(program)).debug
	strip --strip-debug $(DESTDIR)$(PREFIX)/bin/$(notdir $(program))
	objcopy --add-gnu-debuglink=$(LIB)/debug$(PREFIX)/bin/$(notdir $(program)).debug $(DESTDIR)$(PREFIX)/bin/$(notdir $(program))

install-lab: install-lab-program install-lab-files

# Manual pages and completions of a program: $(call pages,PROGRAM).
define pages
	install -d $(SHARE)/man/man1 $(BASH_COMPLETIONS) $(ZSH_COMPLETIONS) $(FISH_COMPLETIONS)
	$(1) man $(SHARE)/man/man1
	$(1) completions bash > $(BASH_COMPLETIONS)/$(notdir $(1))
	$(1) completions zsh > $(ZSH_COMPLETIONS)/_$(notdir $(1))
	$(1) completions fish > $(FISH_COMPLETIONS)/$(notdir $(1)).fish
endef

install-lab-files:
	$(call pages,$(PARDA_LAB))

# All but the binary, as the packages have it too.
install-files:
	$(call pages,$(PARDA))
	install -d $(SHARE)/parda $(SHARE)/doc/parda/docs $(dir $(SYSTEMD))
	sed 's|@PREFIX@|$(PREFIX)|g' contrib/systemd/parda.service.in > $(LIB)/systemd/system/parda.service
	sed 's|@PREFIX@|$(PREFIX)|' contrib/systemd/steer.conf.in > $(SHARE)/parda/steer.conf
	install -m 644 contrib/systemd/parda.sysusers.conf $(LIB)/sysusers.d/parda.conf
	install -m 644 contrib/systemd/parda.tmpfiles.conf $(LIB)/tmpfiles.d/parda.conf
	install -m 644 contrib/systemd/parda.socket contrib/parda.toml contrib/prometheus/parda.rules.yml $(SHARE)/parda
	install -m 644 contrib/grafana/parda.json $(SHARE)/parda/grafana.json
	install -m 644 contrib/proxmox/PardaPlugin.pm contrib/proxmox/parda-hook $(SHARE)/parda
	install -m 644 docs/*.md $(SHARE)/doc/parda/docs

uninstall: ## Removes what `make install` installed; configuration, data and user stay
	rm -f $(SHARE)/man/man1/parda.1 $(SHARE)/man/man1/parda-*.1 $(SYSTEMD)
	rm -f $(foreach program,parda parda-lab,$(BASH_COMPLETIONS)/$(program) $(ZSH_COMPLETIONS)/_$(program) $(FISH_COMPLETIONS)/$(program).fish \
	  $(DESTDIR)$(PREFIX)/bin/$(program) $(LIB)/debug$(PREFIX)/bin/$(program).debug)
	rm -rf $(SHARE)/parda $(SHARE)/doc/parda

deb: build ## Debian packages of both programs, and of their symbols: target/packages
	@PARDA=$(PARDA) tools/packages.sh deb

rpm: build ## RPM packages of both programs: target/packages
	@PARDA=$(PARDA) tools/packages.sh rpm

sbom: ## A bill of materials of it, CycloneDX: target/packages; packages have it too
	@tools/sbom.sh

image: build ## A container image of it, as an OCI layout: target/image (umoci)
	@tools/deps.sh umoci=umoci
	@PARDA=$(PARDA) tools/image.sh

clean: ## Removes what was built
	$(CARGO) clean
