package PVE::Storage::Custom::PardaPlugin;

# Proxmox VE: a storage whose disks the parda agent of each node serves, with shares from the VM's configuration. What it is for, how
# it is installed, and what it cannot do: /usr/share/doc/parda/docs/proxmox.md.
#
# Images are raw files on a directory, as those of a storage of type dir. While a volume is active, the agent of the node has its
# image as a disk named STORAGE/vm-VMID-disk-N, and QEMU opens that by NBD.

use strict;
use warnings;

use Errno;
use File::Glob qw(bsd_glob);
use JSON::PP qw(decode_json);

use PVE::INotify;
use PVE::Storage::DirPlugin;
use PVE::Tools qw(run_command);

use base qw(PVE::Storage::DirPlugin);

# The versions of the storage API that this file is written for.
use constant { OLDEST_API => 10, NEWEST_API => 15 };

# Seconds for which QEMU holds a guest's requests while the agent restarts.
use constant RECONNECT_DELAY => 60;

# Seconds that a command of parda may take. It waits for a disk up to 30 s, and for its clients up to 10 s.
use constant TIMEOUT => 60;

# Seconds for which a disk is waited for that the agent is about to open.
use constant OPENS_WITHIN => 15;

# Tests set these. The last: seconds after which a disk without clients is removed whose VM is on another node. QEMU connects within them.
our $PARDA = 'parda';
our $PVE = '/etc/pve';
our $LEFT_AFTER = 600;

# Proxmox refuses a plugin whose version is newer than its own.
sub api {
    my $own = PVE::Storage::APIVER();
    return NEWEST_API if $own > NEWEST_API;
    return $own < OLDEST_API ? OLDEST_API : $own;
}

# Configuration

sub type {
    return 'parda';
}

sub plugindata {
    return {
        content => [{ images => 1, none => 1 }, { images => 1 }],
        format => [{ raw => 1 }, 'raw'],
        'sensitive-properties' => {},
    };
}

sub properties {
    return {
        'parda-volume' => {
            description => "Name of the volume in parda.toml that has the disks.",
            type => 'string',
            pattern => '[A-Za-z0-9][A-Za-z0-9_.-]*',
        },
        'parda-listen' => {
            description => "Unix socket at which the agent serves the disks.",
            type => 'string',
            format => 'pve-storage-path',
            default => "/run/parda/VOLUME.sock",
        },
        'parda-config' => {
            description => "Configuration of the agent.",
            type => 'string',
            format => 'pve-storage-path',
            default => '/etc/parda.toml',
        },
    };
}

sub options {
    return {
        path => { fixed => 1 },
        'parda-volume' => { fixed => 1 },
        'parda-listen' => { optional => 1 },
        'parda-config' => { optional => 1 },
        is_mountpoint => { optional => 1 },
        'content-dirs' => { optional => 1 },
        content => { optional => 1 },
        nodes => { optional => 1 },
        shared => { optional => 1 },
        disable => { optional => 1 },
        bwlimit => { optional => 1 },
        preallocation => { optional => 1 },
    };
}

# The agent

# Runs a command of parda. Returns its output. Dies of its error.
my $parda = sub {
    my ($scfg, @command) = @_;
    my ($out, $err) = ('', '');
    my $config = $scfg->{'parda-config'} // '/etc/parda.toml';
    my $code = run_command(
        [$PARDA, @command, '-c', $config],
        outfunc => sub { $out .= "$_[0]\n" },
        errfunc => sub { $err .= "$_[0]\n" },
        noerr => 1,
        timeout => TIMEOUT,
    );
    $err =~ s/^parda: //;
    die $err || "$PARDA $command[0]: exit code $code\n" if $code;
    return $out;
};

# The storage's volume, as the agent's status has it.
my $status = sub {
    my ($scfg) = @_;
    my $status = decode_json($parda->($scfg, 'status', '--json', '-'));
    my ($volume) = grep { $_->{name} eq $scfg->{'parda-volume'} } $status->{volumes}->@*;
    die "the agent has no volume '$scfg->{'parda-volume'}'\n" if !$volume;
    return $volume;
};

# A number that may come from a user. Perl does not taint it any more.
my $number = sub {
    my ($what, $value) = @_;
    return $value =~ m/^([0-9]+)\z/ ? $1 : die "$what '$value': not a number\n";
};

my $socket = sub {
    my ($scfg) = @_;
    return $scfg->{'parda-listen'} // "/run/parda/$scfg->{'parda-volume'}.sock";
};

# Name of a volume's disk. No storage has a / in its name, so two storages never have the same disk.
my $disk_name = sub {
    my ($class, $storeid, $volname) = @_;
    my ($name) = ($class->parse_volname($volname))[1] =~ m/^(.*)\.raw\z/;
    my ($storage) = $storeid =~ m/^([A-Za-z][A-Za-z0-9_.-]*)\z/ or die "storage '$storeid': not a name\n";
    return "$storage/$name";
};

# A volume's disk in the agent's status, if it is served. Dies if a disk of the same name is not this plugin's.
my $served = sub {
    my ($scfg, $name) = @_;
    my ($disk) = grep { $_->{name} eq $name } $status->($scfg)->{disks}->@*;
    return if !$disk;
    my $listen = 'unix:' . $socket->($scfg);
    die "disk '$name': the name is taken by a disk of $disk->{listen}, from: $disk->{from}\n"
        if $disk->{from} eq 'configuration' || $disk->{listen} ne $listen;
    return $disk;
};

my $remove = sub {
    my ($scfg, $name) = @_;
    my @volume = ('--volume', $scfg->{'parda-volume'});
    eval {
        $parda->($scfg, 'drain', $name, '--wait', '10s', @volume);
        $parda->($scfg, 'disk', 'remove', $name, @volume);
    };
    if (my $err = $@) {
        eval { $parda->($scfg, 'drain', $name, '--undo', @volume) };
        warn $@ if $@;
        die "disk '$name': is served on: $err";
    }
};

# The VM's configuration

# Keys and values of the configuration of a VM, on whatever node it is. While a VM moves, the node that it left has it.
my $vm_config = sub {
    my ($vmid) = @_;
    my $config = {};
    for my $path (bsd_glob("$PVE/nodes/*/qemu-server/$vmid.conf")) {
        open(my $file, '<', $path) or next;
        while (my $line = <$file>) {
            # Snapshots and pending changes are below.
            last if $line =~ m/^\[/;
            $config->{$1} = $2 if $line =~ m/^([a-z]+[0-9]*):\s*(.*?)\s*$/;
        }
        last;
    }
    return $config;
};

# Times since when disks have no clients and their VMs are on another node.
my %idle_since;

# Whether a migration left the disk here: one that was cut, or whose node could not be reached at its end.
my $is_left = sub {
    my ($disk, $vmid) = @_;
    my @nodes = map { m!/nodes/([^/]+)/! } bsd_glob("$PVE/nodes/*/qemu-server/$vmid.conf");
    if ($disk->{clients} || !@nodes || grep { $_ eq PVE::INotify::nodename() } @nodes) {
        delete $idle_since{ $disk->{name} };
        return 0;
    }
    return time() - ($idle_since{ $disk->{name} } //= time()) >= $LEFT_AFTER;
};

# The options of a drive. Its volume may stand anywhere, with an old name or none.
my $drive_options = sub {
    my ($line) = @_;
    my %options;
    for my $option (split(/,/, $line)) {
        my ($key, $value) = $option =~ m/^([^=]+)=(.*)\z/ ? ($1, $2) : ('file', $option);
        $key = 'file' if $key eq 'volume';
        $key =~ s/^((?:bps|iops)_(?:rd|wr))_length\z/$1_max_length/;
        $options{$key} = $value;
    }
    return \%options;
};

# The limit of the agent for a drive with these options, undef if the drive has none. The agent knows the words.
my $limit = sub {
    my ($options) = @_;
    my @limit;
    for my $key (sort grep { m/^(?:iops|m?bps)(?:_rd|_wr)?(?:_max)?(?:_length)?\z/ } keys $options->%*) {
        my ($value) = $options->{$key} =~ m/^([0-9.]+(?:e[0-9]+)?)\z/i;
        next if !$value || $value == 0;
        # A length of mbps_max is bps_max_length.
        next if $key =~ m/^(.*)_length\z/ && !$options->{$1} && !$options->{"m$1"};
        push @limit, "$key = " . (0 + $value);
    }
    return if !@limit;
    return '{ ' . join(', ', @limit) . ' }';
};

# What the agent's disk is to have: the VM's tags, and the options of the drive. Shares are those of each disk.
my $settings = sub {
    my ($class, $storeid, $volname) = @_;
    my $vmid = ($class->parse_volname($volname))[2];
    my $config = $vm_config->($vmid);
    my %settings = (shares => 1000);
    my %keys = (shares => qr/[0-9]+/, reservation => qr/[0-9]+/, tenant => qr/[a-z0-9_.+-]+/);
    # Of two tags with one key, the highest number counts, as for the hook, or the last in the order of the alphabet.
    my %seen;
    for my $tag (sort split(/[;, ]+/, $config->{tags} // '')) {
        my ($key, $value) = $tag =~ m/^parda-([a-z]+)-(.+)\z/ or next;
        if ($keys{$key} && $value =~ m/^($keys{$key})\z/) {
            my $new = $1;
            $settings{$key} = $new if $key eq 'tenant' || !$seen{$key}++ || $new > $settings{$key};
        } else {
            warn "tag '$tag' of VM $vmid: is none of parda-shares-N, parda-reservation-N, parda-tenant-NAME\n";
        }
    }
    for my $drive (sort grep { m/^(?:ide|sata|scsi|virtio|efidisk)[0-9]+\z/ } keys $config->%*) {
        my $options = $drive_options->($config->{$drive});
        next if ($options->{file} // '') ne "$storeid:$volname";
        my $limit = $limit->($options);
        $settings{limit} = $limit if $limit;
    }
    return %settings;
};

# Names

sub parse_volname {
    my ($class, $volname) = @_;
    if ($volname =~ m!^([1-9][0-9]{2,8})/(vm-\1-[A-Za-z0-9][A-Za-z0-9_.+-]*\.raw)\z!) {
        return ('images', $2, $1, undef, undef, undef, 'raw');
    }
    die "volume '$volname': must be VMID/vm-VMID-NAME.raw on a storage of type parda\n";
}

sub path {
    my ($class, $scfg, $volname, $storeid, $snapname) = @_;
    die "volume '$volname': there are no snapshots on a storage of type parda\n" if defined($snapname);
    my ($vtype, $vmid) = ($class->parse_volname($volname))[0, 2];
    my $path = 'nbd:unix:' . $socket->($scfg) . ':exportname=' . $class->$disk_name($storeid, $volname);
    return wantarray ? ($path, $vmid, $vtype) : $path;
}

sub qemu_blockdev_options {
    my ($class, $scfg, $storeid, $volname, $machine_version, $options) = @_;
    die "volume '$volname': there are no snapshots on a storage of type parda\n"
        if defined($options->{'snapshot-name'});
    return {
        driver => 'nbd',
        server => { type => 'unix', path => $socket->($scfg) },
        export => $class->$disk_name($storeid, $volname),
        'reconnect-delay' => RECONNECT_DELAY,
    };
}

# Storage

sub check_connection {
    my ($class, $storeid, $scfg) = @_;
    $status->($scfg);
    return 1;
}

# Each node asks for it every few seconds. A disk whose file was freed on another node is removed: its agent would keep the space. So is
# one that a migration left here.
sub status {
    my ($class, $storeid, $scfg, $cache) = @_;
    my @answer = $class->SUPER::status($storeid, $scfg, $cache);
    return @answer if !$answer[3];
    my $disks = eval { $status->($scfg)->{disks} } // [];
    warn $@ if $@;
    for my $disk ($disks->@*) {
        my ($name, $vmid) = $disk->{name} =~ m!^\Q$storeid\E/(vm-([0-9]+)-.*)\z! or next;
        next if $disk->{from} eq 'configuration' || $disk->{listen} ne 'unix:' . $socket->($scfg);
        my $left = $is_left->($disk, $vmid);
        next if $disk->{clients};
        my $path = eval { $class->filesystem_path($scfg, "$vmid/$name.raw") } or next;
        eval { $remove->($scfg, "$storeid/$name") } if $left || !-e $path && $!{ENOENT};
        warn $@ if $@;
    }
    return @answer;
}

# Volumes

# Directory of a VM's images. Whoever can write to the storage could have a link lead to another VM's images or to a directory of the node.
my $folder = sub {
    my ($class, $scfg, $vmid) = @_;
    my $folder = $class->get_subdir($scfg, 'images') . "/$vmid";
    die "'$folder': is a link, and no directory of this storage: remove it\n" if -l $folder;
    return $folder;
};

# Path of a volume's image.
my $image = sub {
    my ($class, $storeid, $scfg, $volname) = @_;
    $class->$folder($scfg, ($class->parse_volname($volname))[2]);
    my $path = $class->filesystem_path($scfg, $volname);
    die "volume '$storeid:$volname': there is no file '$path'\n" if !-e $path;
    die "volume '$storeid:$volname': '$path' is no file of this storage: it is a link, or not a file\n"
        if -l $path || !-f $path;
    return $path;
};

sub activate_volume {
    my ($class, $storeid, $scfg, $volname, $snapname, $cache, $hints) = @_;
    my $name = $class->$disk_name($storeid, $volname);
    my $path = $class->$image($storeid, $scfg, $volname);
    warn "disk '$name': this Proxmox VE cannot have QEMU connect again: a restart of the agent is an IO error in VM\n"
        if api() < 12;

    my @volume = ('--volume', $scfg->{'parda-volume'});
    my %settings = $class->$settings($storeid, $volname);
    # In quotes, a name of digits is a name.
    $settings{tenant} = "\"$settings{tenant}\"" if $settings{tenant};
    my @settings = map { "$_=$settings{$_}" } sort keys %settings;
    my @disk = ("path=$path", 'listen=unix:' . $socket->($scfg), 'format=raw');
    # Both nodes of a live migration have the disk open for a while. The page caches of two nodes would differ.
    push @disk, 'lock=shared', 'direct=on' if $scfg->{shared};

    my $disk = $served->($scfg, $name);
    # An agent that has just started opens it, and tries again what it cannot open.
    for (my $seconds = 0; $disk && $disk->{state} ne 'serving'; $seconds++) {
        die "disk '$name': is $disk->{state}: " . ($disk->{fault} // 'its file system does not answer') . "\n"
            if $seconds >= OPENS_WITHIN;
        sleep(1);
        $disk = $served->($scfg, $name);
    }
    if ($disk) {
        # Settings that cannot be unset live.
        my @gone = grep { defined($disk->{settings}->{$_}) && !$settings{$_} } qw(tenant reservation limit);
        if (!$disk->{clients} && (@gone || $disk->{replaced})) {
            $remove->($scfg, $name);
            $disk = undef;
        } elsif ($disk->{replaced}) {
            die "disk '$name': its VM has a file that was replaced: '$path' is another one\n";
        } elsif (@gone) {
            warn "disk '$name': keeps its @gone until its VM has stopped\n";
        }
    }
    # Another activation or deactivation may be faster.
    my $refused;
    for my $try (1 .. 3) {
        if ($served->($scfg, $name)) {
            eval { $parda->($scfg, 'drain', $name, '--undo', @volume) };
            $refused = $@ and next;
            eval { $parda->($scfg, 'set', $name, @settings, @volume) };
            warn "disk '$name': its settings stay as they were: $@" if $@;
            return;
        }
        eval { $parda->($scfg, 'disk', 'add', $name, @disk, @settings, @volume) };
        $refused = $@ or return;
        next if $served->($scfg, $name);
        # A wrong tag must not keep a VM from starting.
        eval { $parda->($scfg, 'disk', 'add', $name, @disk, @volume) };
        next if $@;
        warn "disk '$name': is served with 1000 shares and no more settings: $refused";
        return;
    }
    die "volume '$storeid:$volname': $refused";
}

sub deactivate_volume {
    my ($class, $storeid, $scfg, $volname, $snapname, $cache) = @_;
    my $name = $class->$disk_name($storeid, $volname);
    $remove->($scfg, $name) if $served->($scfg, $name);
    return 1;
}

# TPM state, which is what calls this for a VM, is opened as a file.
sub map_volume {
    my ($class, $storeid, $scfg, $volname) = @_;
    die "volume '$storeid:$volname': cannot be mapped, as only QEMU can open it: keep TPM state on another storage\n";
}

sub alloc_image {
    my ($class, $storeid, $scfg, $vmid, $fmt, $name, $size) = @_;
    die "format '$fmt': must be raw on a storage of type parda\n" if $fmt ne 'raw';
    $vmid = $number->('VMID', $vmid);
    $name = ($class->parse_volname("$vmid/$name"))[1] if $name;
    # For direct IO, in KiB.
    $size = ($number->('size', $size) + 3) & ~3;
    my $folder = $class->$folder($scfg, $vmid);
    my $volname = $class->SUPER::alloc_image($storeid, $scfg, $vmid, $fmt, $name, $size);
    my $path = $class->filesystem_path($scfg, $volname);
    # The agent opens it as its own user.
    my $group = getgrnam('parda') // -1;
    my $given = chown(-1, $group, $folder, $path) == 2 && chmod(0750, $folder) && chmod(0660, $path);
    warn "'$path': cannot be given to the group parda: $!\n" if !$given;
    return $volname;
}

sub free_image {
    my ($class, $storeid, $scfg, $volname, $isBase, $format) = @_;
    # With a name that Perl does not taint.
    my ($name, $vmid) = ($class->parse_volname($volname))[1, 2];
    $class->$folder($scfg, $vmid);
    $class->deactivate_volume($storeid, $scfg, $volname);
    return $class->SUPER::free_image($storeid, $scfg, "$vmid/$name", $isBase, $format);
}

sub list_images {
    my ($class, $storeid, $scfg, $vmid, $vollist, $cache) = @_;
    my $folder = $class->get_subdir($scfg, 'images');
    my $images = [];
    for my $path (bsd_glob("$folder/[1-9]*/vm-*.raw")) {
        my ($volname) = $path =~ m!([^/]+/[^/]+)\z!;
        my (undef, $name, $owner) = eval { $class->parse_volname($volname) } or next;
        my $volid = "$storeid:$owner/$name";
        next if $vollist ? !grep { $_ eq $volid } $vollist->@* : defined($vmid) && $owner ne $vmid;
        next if -l $path || !-f _;
        my ($size, $ctime, $blocks) = (stat(_))[7, 10, 12];
        push $images->@*,
            { volid => $volid, format => 'raw', size => $size, vmid => $owner, used => $blocks * 512, ctime => $ctime };
    }
    return $images;
}

# Without qemu-img, which a lock of the agent would keep from opening the file.
sub volume_size_info {
    my ($class, $scfg, $storeid, $volname, $timeout) = @_;
    my $path = $class->filesystem_path($scfg, $volname);
    my ($size, $ctime, $blocks) = (stat($path))[7, 10, 12];
    die "volume '$storeid:$volname': there is no file '$path': $!\n" if !defined($size);
    return wantarray ? ($size, 'raw', $blocks * 512, undef, $ctime) : $size;
}

sub volume_resize {
    my ($class, $scfg, $storeid, $volname, $size, $running, $snapname) = @_;
    die "volume '$storeid:$volname': cannot grow while its VM runs, as QEMU keeps the size of an NBD disk: shut it down\n"
        if $running;
    my ($name, $vmid) = ($class->parse_volname($volname))[1, 2];
    my $path = $class->$image($storeid, $scfg, "$vmid/$name");
    $class->deactivate_volume($storeid, $scfg, $volname);
    my $aligned = ($number->('size', $size) + 4095) & ~4095;
    # Without qemu-img, which a lock of another node's agent would keep from opening the file: a migration that was cut leaves the disk
    # there. Images only ever grow.
    my $failed = sub { die "volume '$storeid:$volname': '$path' cannot grow to $aligned bytes: $!\n" };
    open(my $file, '+<', $path) or $failed->();
    die "volume '$storeid:$volname': has more than $aligned bytes, and cannot shrink\n" if -s $file > $aligned;
    truncate($file, $aligned) && close($file) or $failed->();
    return undef;
}

sub volume_has_feature {
    my ($class, $scfg, $feature, $storeid, $volname, $snapname, $running, $opts) = @_;
    $class->parse_volname($volname);
    return !$snapname && $feature =~ m/^(?:copy|sparseinit)\z/ ? 1 : undef;
}

# Offline copies between nodes would read the path as a file.
sub volume_export_formats { return (); }
sub volume_import_formats { return (); }

for my $what (qw(create_base clone_image volume_snapshot volume_snapshot_rollback volume_snapshot_delete rename_volume)) {
    no strict 'refs';
    *$what = sub { die "$what: there are no templates, linked clones, snapshots or changes of owner on a storage of type parda\n" };
}

1;
