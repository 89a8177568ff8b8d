# Usage: host.sh NAME ADDRESS HOSTS SSHD. Runs one host in namespaces of its own until it is killed. The working folder
# contains ssh, sshd_config and HOSTS, which becomes its /etc/hosts; the script creates up.NAME there. SSHD no: without
# an sshd.
set -e
hostname "$1"
mount -t tmpfs none /dev/shm
mount -t tmpfs none /run
mkdir -p /run/sshd /root/.ssh
mount --bind ssh /root/.ssh
mount --bind "$3" /etc/hosts
ip link set lo up
until ip link show eth0 > /dev/null 2>&1; do sleep 0.05; done
ip address add "$2/24" dev eth0
ip link set eth0 up
[ "$4" = no ] || /usr/sbin/sshd -f sshd_config
: > "up.$1"
while :; do sleep 1000; done  # the same process for the whole of a test, as tests count what is left
