#!/usr/bin/perl -T
# A stand-in for Proxmox VE's storage layer, as far as contrib/proxmox/PardaPlugin.pm needs it: the interface that Proxmox documents
# for plugins, written for these tests. It calls the plugin's methods in the order of pvesm and qm. Answers are JSON.
#
#   perl -T proxmox_stand_in.pl PLUGIN PARDA NODE APIVER COMMAND ...
#
# NODE.cfg is the node's storage.cfg, and pve its /etc/pve.

package PVE::Tools;
use strict;
use warnings;
use parent -norequire, 'Exporter';
use Exporter;
use IPC::Open3;
our @EXPORT_OK = qw(run_command);
BEGIN { $INC{'PVE/Tools.pm'} = __FILE__ }

# What is written to standard error comes after all of standard output, as files and not pipes have both.
sub run_command {
    my ($cmd, %param) = @_;
    open(my $out, '+>', undef) or die "a temporary file: $!";
    open(my $err, '+>', undef) or die "a temporary file: $!";
    open(my $in, '<', '/dev/null') or die "/dev/null: $!";
    my $pid = open3('<&' . fileno($in), '>&' . fileno($out), '>&' . fileno($err), $cmd->@*);
    waitpid($pid, 0);
    my $code = $?;
    for (['outfunc', $out, \*STDOUT], ['errfunc', $err, \*STDERR]) {
        my ($name, $file, $else) = $_->@*;
        seek($file, 0, 0);
        while (my $line = <$file>) {
            chomp $line;
            $param{$name} ? $param{$name}->($line) : print $else "$line\n";
        }
    }
    die "command '$cmd->@*' failed: got signal $code\n" if $code & 127;
    die "command '$cmd->@*' failed: exit code " . ($code >> 8) . "\n" if $code && !$param{noerr};
    return $code >> 8;
}

package PVE::INotify;
our $NODE;
BEGIN { $INC{'PVE/INotify.pm'} = __FILE__ }
sub nodename { return $NODE }

package PVE::Storage;
our $VERSION_OF_API;
sub APIVER { return $VERSION_OF_API }

# A storage of files in a directory. The true one has more formats, contents and checks.
package PVE::Storage::Plugin;
use strict;
use warnings;
use File::Path qw(make_path);
BEGIN { $INC{'PVE/Storage/Plugin.pm'} = __FILE__ }

sub get_subdir { my ($class, $scfg, $type) = @_; return "$scfg->{path}/$type" }

sub filesystem_path {
    my ($class, $scfg, $volname, $snapname) = @_;
    my (undef, $name, $vmid) = $class->parse_volname($volname);
    die "can't snapshot this image format\n" if defined($snapname);
    return $class->get_subdir($scfg, 'images') . "/$vmid/$name";
}

sub activate_storage {
    my ($class, $storeid, $scfg) = @_;
    die "unable to activate storage '$storeid' - directory '$scfg->{path}' does not exist or is unreachable\n"
        if !-d $scfg->{path};
    make_path($class->get_subdir($scfg, 'images'));
}

# Bytes in all, free and used, and whether the storage is active.
sub status { return (4 << 30, 3 << 30, 1 << 30, 1) }

sub find_free_diskname {
    my ($class, $storeid, $scfg, $vmid, $fmt) = @_;
    my %taken = map { $_->{volid} => 1 } $class->list_images($storeid, $scfg, $vmid)->@*;
    my $number = 0;
    $number++ while $taken{"$storeid:$vmid/vm-$vmid-disk-$number.$fmt"};
    return "vm-$vmid-disk-$number.$fmt";
}

sub alloc_image {
    my ($class, $storeid, $scfg, $vmid, $fmt, $name, $size) = @_;
    $name ||= $class->find_free_diskname($storeid, $scfg, $vmid, $fmt);
    my $folder = $class->get_subdir($scfg, 'images') . "/$vmid";
    make_path($folder);
    die "disk image '$folder/$name' already exists\n" if -e "$folder/$name";
    # As the true one, it takes back what it has made when this fails.
    if (!eval { PVE::Tools::run_command(['/usr/bin/qemu-img', 'create', '-q', '-f', $fmt, "$folder/$name", "${size}K"]); 1 }) {
        unlink("$folder/$name");
        rmdir($folder);
        die $@;
    }
    return "$vmid/$name";
}

sub free_image {
    my ($class, $storeid, $scfg, $volname) = @_;
    my $path = $class->filesystem_path($scfg, $volname);
    unlink($path) or die "unlink '$path' failed - $!\n";
    rmdir($path =~ s!/[^/]*\z!!r);
    return undef;
}

package PVE::Storage::DirPlugin;
use parent -norequire, 'PVE::Storage::Plugin';
BEGIN { $INC{'PVE/Storage/DirPlugin.pm'} = __FILE__ }

package main;
use strict;
use warnings;
use JSON::PP;

$ENV{PATH} = '/usr/sbin:/usr/bin:/sbin:/bin';
delete @ENV{qw(IFS CDPATH ENV BASH_ENV)};

# Proxmox untaints what its own configuration says, and nothing that a user says.
sub untainted { my ($text) = @_; return $text =~ m/^(.*)\z/s ? $1 : undef }

(my ($plugin, $parda, $node, $version), my ($command, @args)) = (map({ untainted($_) } splice(@ARGV, 0, 4)), @ARGV);
$PVE::Storage::VERSION_OF_API = $version;
$PVE::INotify::NODE = $node;
require $plugin;
my $class = 'PVE::Storage::Custom::PardaPlugin';
die "not derived from PVE::Storage::Plugin\n" if !$class->isa('PVE::Storage::Plugin');
{
    no warnings 'once';
    $PVE::Storage::Custom::PardaPlugin::PARDA = $parda;
    $PVE::Storage::Custom::PardaPlugin::PVE = 'pve';
}

# Storages of NODE.cfg, checked by what the plugin says of its options.
sub storages {
    my %known = ($class->options()->%*);
    my $own = $class->properties();
    my ($storages, $of) = {};
    open(my $file, '<', "$node.cfg") or die "$node.cfg: $!\n";
    while (my $line = <$file>) {
        if ($line =~ m/^(\S+): (\S+)$/) {
            die "$node.cfg: type '$1'\n" if $1 ne $class->type();
            $of = $storages->{$2} = { type => $1 };
        } elsif ($line =~ m/^\s+(\S+) (.*\S)$/) {
            die "$node.cfg: unexpected property '$1'\n" if !$known{$1};
            my ($key, $value) = (untainted($1), untainted($2));
            my $pattern = $own->{$key}->{pattern} // '.*';
            die "$node.cfg: $key: value does not match the regex pattern\n" if $value !~ m/^(?:$pattern)\z/;
            $of->{$key} = $value;
        }
    }
    for my $storage (values $storages->%*) {
        for my $key (grep { !$known{$_}->{optional} } keys %known) {
            die "$node.cfg: missing value for required option '$key'\n" if !defined($storage->{$key});
        }
    }
    return $storages;
}

my ($storeid, $volname) = ($args[0] // '') =~ m/^([a-z][a-z0-9_.-]*[a-z0-9])(?::(.+))?\z/i;
my $scfg = defined($storeid) ? storages()->{$storeid} // die "storage '$storeid' does not exist\n" : undef;

sub activate_storage {
    die "connection check for storage '$storeid' failed - $@" if !eval { $class->check_connection($storeid, $scfg) };
    $class->activate_storage($storeid, $scfg, {});
}

my %commands = (
    api => sub { $class->api() },
    alloc => sub {
        my (undef, $vmid, $name, $size) = @_;
        activate_storage();
        umask(umask() | 0037);
        my $fmt = $name && $name =~ m/\.(qcow2)\z/ ? $1 : 'raw';
        return "$storeid:" . $class->alloc_image($storeid, $scfg, untainted($vmid), $fmt, $name, $size);
    },
    free => sub {
        activate_storage();
        my $format = ($class->parse_volname($volname))[6];
        $class->free_image($storeid, $scfg, $volname, undef, $format);
    },
    status => sub { activate_storage(); [$class->status($storeid, $scfg, {})] },
    # The daemon that asks for it again and again, with another patience in seconds.
    looks => sub {
        no warnings 'once';
        $PVE::Storage::Custom::PardaPlugin::LEFT_AFTER = $_[1];
        for (0 .. $_[1]) {
            activate_storage();
            $class->status($storeid, $scfg, {});
            sleep(1);
        }
        activate_storage();
        [$class->status($storeid, $scfg, {})];
    },
    list => sub { activate_storage(); $class->list_images($storeid, $scfg, $_[1]) },
    size => sub { scalar $class->volume_size_info($scfg, $storeid, $volname) },
    activate => sub { activate_storage(); $class->activate_volume($storeid, $scfg, $volname, undef, {}, {}) },
    deactivate => sub { $class->deactivate_volume($storeid, $scfg, $volname, undef, {}) },
    resize => sub { $class->volume_resize($scfg, $storeid, $volname, $_[1], $_[2]) },
    path => sub { [$class->path($scfg, $volname, $storeid)] },
    blockdev => sub { $class->qemu_blockdev_options($scfg, $storeid, $volname, '10.1+pve0', {}) },
    map => sub { $class->map_volume($storeid, $scfg, $volname) },
    snapshot => sub { $class->volume_snapshot($scfg, $storeid, $volname, 'before') },
    feature => sub { $class->volume_has_feature($scfg, $_[1], $storeid, $volname) },
);
my $answer = ($commands{$command} // die "$command: no such command\n")->(@args);
print JSON::PP->new->canonical->allow_nonref->encode($answer), "\n";
