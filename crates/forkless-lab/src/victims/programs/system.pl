# The Perl victim: perl system.pl MIB PROGRAM; orders as parent.c takes them.
use strict;
use warnings;
use Time::HiRes qw(clock_gettime CLOCK_MONOTONIC);

my ($mib, $program) = @ARGV;
my $memory = '';
$memory .= 'x' x (1 << 20) for 1 .. $mib;
$| = 1;
print "ready\n";
while (my $order = <STDIN>) {
    my (undef, $count) = split ' ', $order;
    my @times;
    for (1 .. $count) {
        my $begin = clock_gettime(CLOCK_MONOTONIC);
        system($program) == 0 or die "system: wait status $?";
        push @times, sprintf '%.0f', (clock_gettime(CLOCK_MONOTONIC) - $begin) * 1e9;
    }
    print "@times\n";
}
