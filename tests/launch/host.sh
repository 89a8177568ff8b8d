# usage: host.sh NAME ADDRESS HOSTS SSHD
# Runs one host, in the namespaces of this process, until it is killed. The working folder contains ssh, sshd_config and HOSTS,
# which becomes the host's /etc/hosts. Creates up.NAME there when the host is ready. With SSHD "no", runs no sshd.
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
# This process remains for the whole test, because tests count the processes that are left.
while :; do sleep 1000; done
